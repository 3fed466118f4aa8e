"""Kernels that are wrong as a whole, each in a way that a weaker check would accept; the validator refuses them all."""

import dataclasses
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from common.compile.source import Source, build
from common.devices.ptx.device import PtxDevice
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import scenarios
from common.validate.verdict import Mismatch

pytestmark = pytest.mark.cpu
ENTRY = "struct Kernel : Baseline<Kernel> {};"
ONE = "if (blockIdx.x != 0 || threadIdx.x != 0) return;"


def kernel(model, body: str) -> Source:
    """The baseline with another `decode`: `step(c)` is the correct step, and `c` the context."""
    source = build([], model, 64)
    assert source.text.count(ENTRY) == 1
    decode = f"static DEVICE void decode(const Context &c, int) {{\n{body}\n}}"
    text = source.text.replace(ENTRY, f'#line 1 "wrong"\nstruct Kernel : Baseline<Kernel> {{ {decode} }};')
    return dataclasses.replace(source, text=text)


@pytest.fixture
def refused(cpu_cache: Path, tiny, seed) -> Callable[[str], Mismatch]:
    """refused(body): the mismatch that the validator finds in a kernel on one block."""

    def look(body: str) -> Mismatch:
        weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat
        device = PtxDevice(cpu_cache, seed=seed)
        with closing(device.session(device.compile(kernel(tiny, body)), weights, blocks=1)) as session:
            verdict = validate(session, weights, scenarios(tiny, seed, weights), seed)
        assert verdict.status == "MISMATCH", verdict
        return verdict.mismatch

    return look


def test_the_correct_step_passes(cpu_cache, tiny, seed):
    weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    device = PtxDevice(cpu_cache, seed=seed)
    program = device.compile(kernel(tiny, "Baseline<Kernel>::step(c);"))
    with closing(device.session(program, weights, blocks=1)) as session:
        assert validate(session, weights, scenarios(tiny, seed, weights), seed).passed, seed


def test_kernel_that_works_only_in_the_first_launch(refused):
    """Correct in the first launch only; later launches leave the buffers unchanged."""
    found = refused("static bool done; const bool first = !done; block_barrier(); done = true; if (first) step(c);")
    assert (found.stage, found.note) == ("embed", "differs between runs, step 0, scenario: position 0")


def test_kernel_that_replays_the_first_launch(refused):
    """Replays the outputs of the first launch: correct for the same input, so a repeated run is identical."""
    found = refused(
        f"""constexpr int heads = model::layers * 2 * model::kv_heads;
        static float scratch[scratch_at::workspace]; static bf16 cache[heads][model::head_dim];
        static unsigned token; static bool played;
        const bool first = !played;
        block_barrier();
        if (first) step(c);
        block_barrier();
        {ONE}
        played = true;
        for (size_t i = 0; i < scratch_at::workspace; ++i) {{
          if (first) scratch[i] = c.scratch[i];
          else c.scratch[i] = scratch[i];
        }}
        for (int head = 0; head < heads; ++head)
          for (int i = 0; i < model::head_dim; ++i) {{
            auto *entries = reinterpret_cast<bf16 *>(c.cache);
            bf16 &entry = entries[(size_t(head) * model::positions + c.position) * model::head_dim + i];
            if (first) cache[head][i] = entry;
            else entry = cache[head][i];
          }}
        if (first) token = c.state[state_at::token];
        else store_token(c, token);"""
    )
    assert found.stage in ("embed", "rope")
    assert "scenario: position 0" not in found.note


def test_stale_outputs(refused):
    """Every other step only advances the position: it leaves the results of the step before."""
    found = refused(
        f"if (c.position % 2 == 0) return step(c); block_barrier(); {ONE} store_token(c, c.state[state_at::token]);"
    )
    assert found.stage in ("embed", "rope")

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
    """The baseline with another `decode`: `step(c)` is the correct step, and `c` the context.

    A static variable of `body` needs a unique name: the loader merges `decode()::name` of all libraries.
    """
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
            verdict = validate(session, weights, tiny, scenarios(tiny, seed, weights), seed)
        assert verdict.status == "MISMATCH", verdict
        return verdict.mismatch

    return look


def test_the_correct_step_passes(cpu_cache, tiny, seed):
    weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    device = PtxDevice(cpu_cache, seed=seed)
    program = device.compile(kernel(tiny, "Baseline<Kernel>::step(c);"))
    with closing(device.session(program, weights, blocks=1)) as session:
        assert validate(session, weights, tiny, scenarios(tiny, seed, weights), seed).passed, seed


def test_empty_kernel(refused):
    found = refused("")
    assert (found.stage, found.index) == ("embed", (0,))
    assert found.got != found.got  # NaN: nothing was written


def test_kernel_that_only_embeds(refused):
    """Copies its input to every result of the same width, and chooses the token it was given."""
    found = refused(
        f"""embed(c); block_barrier(); {ONE}
        const float *x = tap<Stage::embed>(c, 0);
        for (int i = 0; i < model::hidden; ++i) {{
          for (int layer = 0; layer < model::layers; ++layer)
            tap<Stage::input_norm>(c, layer)[i] = tap<Stage::o_proj>(c, layer)[i] = tap<Stage::post_norm>(c, layer)[i] =
                tap<Stage::down>(c, layer)[i] = x[i];
          tap<Stage::final_norm>(c, 0)[i] = x[i];
        }}
        store_token(c, c.token);"""
    )
    assert (found.stage, found.layer) == ("input_norm", 0)


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


def test_correct_step_that_then_clears_its_values(refused):
    """All outputs of this step are correct, but the values in the cache for the next one are cleared."""
    found = refused(
        f"""step(c); block_barrier(); {ONE}
        for (int i = 0; i < model::head_dim; ++i)
          values(c, 0, 0)[size_t(c.position) * model::head_dim + i] = EntryUnit();"""
    )
    assert (found.stage, found.layer) == ("value", 0)


def test_correct_step_that_changes_an_older_position(refused):
    found = refused(
        f"""step(c); block_barrier(); {ONE}
        bf16 *entry = reinterpret_cast<bf16 *>(keys(c, model::layers - 1, 1));
        if (c.position > 0) entry[size_t(c.position - 1) * model::head_dim] ^= 1;"""
    )
    assert found.stage == "cache"
    assert "must not touch" in found.note


def test_correct_logits_without_the_stages_before(refused):
    """Correct logits and a correct token, without the taps of the earlier stages."""
    found = refused(
        f"""step(c); block_barrier(); {ONE}
        for (size_t i = 0; i < Tap<Stage::lm_head>::at; ++i) c.scratch[i] = negative_infinity();"""
    )
    assert (found.stage, found.got) == ("embed", float("-inf"))


def test_second_best_token(refused):
    found = refused(
        f"""step(c); block_barrier(); {ONE}
        const unsigned best = c.state[state_at::token];
        const float *logits = tap<Stage::lm_head>(c, 0);
        unsigned second = best == 0 ? 1 : 0;
        for (unsigned id = 0; id < model::vocab; ++id)
          if (id != best && logits[id] > logits[second]) second = id;
        store_token(c, second);"""
    )
    assert found.stage == "argmax"


def test_another_last_bit_in_every_run(refused):
    """Within all tolerances, but different in every run."""
    found = refused(
        f"""static unsigned launches; step(c); block_barrier(); {ONE}
        float &element = tap<Stage::final_norm>(c, 0)[0];
        element = __uint_as_float(__float_as_uint(element) ^ (launches++ & 1));"""
    )
    assert (found.stage, found.note.split(",")[0]) == ("final_norm", "differs between runs")


def test_token_that_is_not_written_to_the_ids(refused):
    """The next id is never written, so a second step would decode -1."""
    found = refused(f"step(c); block_barrier(); {ONE} c.state[state_at::ids + c.position + 1] = unsigned(-1);")
    assert (found.stage, found.note.split(",")[0]) == ("state", "ids")

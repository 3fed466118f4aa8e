"""Bytes that a token of a stack moves, stage by stage, and the classes of its instructions."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from composed import CATALOG, Composed

from common.devices.ptx.counted import class_of
from experiments.__main__ import main

pytestmark = pytest.mark.cpu
# What NVRTC decides: it may load an activation once that a text loads again, or repeat a shuffle.
OPEN = ("activations", "shared", "block_barriers", "shuffles")
FROZEN = yaml.safe_load(Path(__file__).with_name("counted.yaml").read_text())


@pytest.mark.parametrize("name", FROZEN)
def test_a_token_moves_the_frozen_bytes(name, open_session, synthetic, tiny, seed):
    """Whatever the schedule and the weights."""
    stack = CATALOG.stacks[name]
    session = open_session(Composed(stack.variants, stack.knobs).source(tiny), synthetic(tiny, seed), schedule=seed)
    session.reset([1] * 10, 9, torch.zeros(session.layout.cache.shape, dtype=torch.bfloat16))
    found = {
        stage: {field: count for field, count in counted.items() if count and not field.startswith(OPEN)}
        for stage, counted in session.count().by_stage.items()
    }
    assert {stage: counted for stage, counted in found.items() if counted} == FROZEN[name]


EACH = """const auto a = load_weights<8>(c.weights); const auto b = load_weights<16>(c.weights);
    const unsigned sum = a.word[0] + a.word[1] + b.word[0] + b.word[1] + b.word[2] + b.word[3];
    const float more = load_weight(c.weights + 20) + __uint_as_float(load_packet<4>(c.cache).word[0]);
    out[64 * blockIdx.x + threadIdx.x] = __uint_as_float(sum) + more;
    c.cache[8 + 64 * blockIdx.x + threadIdx.x] = Cache(1);
    block_barrier(); grid_barrier(c, Stage::down, 1);"""


def test_counts_are_exact(launch):
    """By hand: 3 blocks of 64 threads, and each thread executes all of it."""
    session, threads = launch(EACH), 3 * 64
    session.reset([1], 0)
    counts = session.count()
    assert counts.bytes_by_width("weights") == {16: 2 * threads, 64: 8 * threads, 128: 16 * threads}
    assert counts.bytes_by_width("kv") == {32: 4 * threads}
    assert (counts.total("stored_activations"), counts.total("stored_kv")) == (4 * threads, 2 * threads)
    # A grid barrier has one of a block before its arrival, and one after the last block's.
    assert [counts.total(each) for each in ("grid_barriers", "block_barriers", "atomics")] == [1, 3 * (1 + 2), 3]


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("fma.rn.f32", "float"),
        ("mad.lo.s32", "integer"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor"),
        ("ld.global.nc.v4.u32", "memory"),
        ("mbarrier.try_wait.parity.acquire.cta.shared::cta.b64", "exchange"),
        ("setp.lt.f32", "branch"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint", "cp"),
    ],
)
def test_an_opcode_has_a_class(opcode, kind):
    assert class_of(opcode) == kind


def test_the_experiment_counts_instructions_of_a_stage(cpu_cache, tiny, tmp_path, capsys):
    """By hand: a product a weight; five sums in each lane of a row's warp; and in down the residual of each row."""
    argv = ["experiment=counts", "options.instructions=true", "device=ptx", "variant=baseline", "model=tiny"]
    assert main([*argv, "json=true", f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl"]) == 0
    rows = {row["stage"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    down, head = tiny.hidden * tiny.layers, tiny.vocab
    assert 1e6 * rows["down"]["M float"] == pytest.approx(down * (tiny.intermediate + 5 * 32 + 1))
    assert 1e6 * rows["lm_head"]["M float"] == pytest.approx(head * (tiny.hidden + 5 * 32))
    assert 1e6 * rows["lm_head"]["weights MB"] == pytest.approx(2 * head * tiny.hidden)
    for column in ("M instructions", "M integer", "weights MB", "stored MB"):
        assert rows["all"][column] == pytest.approx(sum(row[column] for name, row in rows.items() if name != "all"))

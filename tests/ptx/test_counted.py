"""Bytes that a token of a stack moves, stage by stage."""

from pathlib import Path

import pytest
import torch
import yaml
from composed import CATALOG, Composed

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

"""Baseline megakernel: equal to the float64 reference for any grid, block and position."""

import dataclasses
import re

import pytest
import torch

from common.compile.source import Source, build
from common.errors import Hung
from common.model.layout import Layout
from common.model.stages import LAYER_STAGES
from common.validate.check import validate
from common.validate.scenarios import scenarios

pytestmark = pytest.mark.cpu
BLOCK_BARRIER = "  block_barrier();"


@pytest.mark.parametrize("blocks", [1, 2, 3, 8, 19])
def test_any_grid_size(open_session, synthetic, baseline, blocks, seed):
    weights = synthetic(baseline.model, seed)
    session = open_session(baseline, weights, blocks, schedule=seed)
    verdict = validate(session, weights, baseline.model, scenarios(baseline.model, seed, weights), seed)
    assert verdict.passed, verdict


@pytest.mark.parametrize("threads", [32, 96, 512, 1024])
def test_any_block_size(open_session, synthetic, tiny, threads, seed):
    weights = synthetic(tiny, seed)
    session = open_session(build([], tiny, threads), weights, blocks=3, schedule=seed)
    verdict = validate(session, weights, tiny, scenarios(tiny, seed, weights, quick=True), seed)
    assert verdict.passed, verdict


def test_sizes_that_are_no_power_of_two(open_session, synthetic, odd, seed):
    weights = synthetic(odd, seed)
    session = open_session(build([], odd), weights, blocks=5, schedule=seed)
    verdict = validate(session, weights, odd, scenarios(odd, seed, weights), seed)
    assert verdict.passed, verdict


def test_twenty_schedules_give_the_same_bits(same_in_any_order, synthetic, baseline, seed):
    weights = synthetic(baseline.model, seed)
    start = list(scenarios(baseline.model, seed, weights, quick=True))[-1]
    same_in_any_order(baseline, weights, start, range(seed, seed + 20))


def test_counts_follow_from_the_shapes(open_session, synthetic, baseline, seed):
    """Weights and barriers of one step, counted by hand from the model's shapes."""
    model, position = baseline.model, 9
    session = open_session(baseline, synthetic(model, seed), blocks=8)
    session.reset([1] * (position + 1), position, torch.zeros(Layout(model).cache.shape, dtype=torch.bfloat16))
    counts = session.count()
    assert counts.total("grid_barriers") == 1 + 8 * model.layers + 2
    assert all(counts.of(stage, "grid_barriers") == model.layers for stage in LAYER_STAGES)
    matrices = 2 * model.matrix_weights
    norms = 2 * model.hidden * (2 * model.layers + 1)  # by block 0, each element once
    assert counts.bytes_by_width("weights")[64] == matrices + norms
    head_norms = model.layers * (model.heads + model.kv_heads) * model.head_dim * 2
    assert counts.bytes_by_width("weights")[16] == head_norms + 2 * model.hidden  # and the embedding row
    shared = model.heads // model.kv_heads  # each query head reads its keys and values again
    assert counts.loaded("kv") == shared * model.kv_bytes_per_position * (position + 1)
    assert counts.total("stored_kv") == model.kv_bytes_per_position


def without_grid_barrier(source: Source, stage: str) -> str:
    return replace_nth(source.text, "S != Stage::argmax", f"S != Stage::argmax && S != Stage::{stage}", 0)


def without_block_barrier(source: Source, site: int) -> str:
    return replace_nth(source.text, BLOCK_BARRIER, "  ;", site)


def block_barriers(source: Source) -> list[int]:
    """Indexes of the block barriers that the baseline executes: all but the unused grid barrier's."""
    unused = source.text.index("void epoch_barrier(")
    unused = range(unused, source.text.index("#line", unused))
    places = [match.start() for match in re.finditer(re.escape(BLOCK_BARRIER), source.text)]
    return [site for site, place in enumerate(places) if place not in unused]


def replace_nth(text: str, old: str, new: str, n: int) -> str:
    pieces = text.split(old)
    assert len(pieces) > n + 1, f"the source does not contain {old!r} {n + 1} times"
    return old.join(pieces[: n + 1]) + new + old.join(pieces[n + 1 :])


def fails(open_session, source: Source, weights: torch.Tensor, seed: int) -> bool:
    """True if validation finds a mismatch or deadlock on some grid and schedule; blocks < heads: attention loops."""
    for attempt in range(12):
        session = open_session(source, weights, blocks=(8, 3, 1)[attempt % 3], schedule=seed + attempt)
        try:
            if not validate(
                session, weights, source.model, scenarios(source.model, seed, weights, quick=True), seed
            ).passed:
                return True
        except Hung:
            return True
    return False


BARRIER_STAGES = ("embed", *LAYER_STAGES, "final_norm", "lm_head")
SITES = 6  # two in grid_barrier, one each in block_sum, block_best and attend_block, one after a head


@pytest.mark.parametrize("stage", BARRIER_STAGES)
def test_grid_barrier_after_each_stage_is_needed(open_session, synthetic, baseline, stage, seed):
    mutant = dataclasses.replace(baseline, text=without_grid_barrier(baseline, stage))
    assert fails(open_session, mutant, synthetic(baseline.model, seed), seed), (stage, seed)


@pytest.mark.parametrize("site", range(SITES))
def test_each_block_barrier_is_needed(open_session, synthetic, baseline, site, seed):
    mutant = dataclasses.replace(baseline, text=without_block_barrier(baseline, block_barriers(baseline)[site]))
    assert fails(open_session, mutant, synthetic(baseline.model, seed), seed), (site, seed)


def test_number_of_block_barriers(baseline):
    assert len(block_barriers(baseline)) == SITES


def test_position_beyond_the_cache_is_refused(open_session, synthetic, baseline, seed):
    session = open_session(baseline, synthetic(baseline.model, seed))
    session.reset([1] * 63, 62)
    with pytest.raises(Exception, match="3 steps from position 62 on do not fit a cache of 64 positions"):
        session.run(3)


def test_last_position_of_the_cache(open_session, synthetic, tiny, seed):
    weights = synthetic(tiny, seed)
    last = [s for s in scenarios(tiny, seed, weights) if s.position == tiny.positions - 1]
    assert last
    session = open_session(build([], tiny), weights, schedule=seed)
    verdict = validate(session, weights, tiny, last, seed)
    assert verdict.passed, verdict

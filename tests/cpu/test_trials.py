"""Trials: correct stacks pass them, and each finds a fault that only its shape, values or age shows."""

from dataclasses import replace

import pytest
import torch
from sampled import sampled

from common.devices.ptx.device import PtxDevice
from common.errors import CompileError
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import prove, text_of
from common.validate.scenarios import Start
from common.validate.trials import GIVEN, TRIALS
from tests.strength.mutants import judge as judging
from tests.strength.mutants.judge import FULL, SURVIVED, TRIAL_SEEDS, judge
from tests.strength.mutants.mutation import read_mutants

pytestmark = pytest.mark.cpu
CATALOG = read_catalog()
BY_NAME = {trial.name: trial for trial in TRIALS}
STACKS = choose_stacks(CATALOG, "catalog", None, {}, 256)


def stack_of(name: str):
    return choose_stacks(CATALOG, name, None, {}, 256)[0]


@pytest.mark.parametrize(
    ("stack", "trial"), sampled([(stack, trial) for stack in STACKS for trial in TRIALS], 3), ids=lambda each: each.name
)
def test_a_correct_stack_passes(stack, trial, cpu_cache, seed):
    device = PtxDevice(cpu_cache, seed=seed, races=trial.races)
    with torch.inference_mode():
        verdict = prove(device, CATALOG, stack, trial, cpu_cache, seed)
    assert verdict.passed, verdict
    tokens, steps = text_of(CATALOG, stack, trial).tokens_per_step, sum(start.steps for start in trial.starts)
    assert verdict.steps == (steps if tokens == 1 else tokens * (steps + len(trial.starts)))  # once more with drafts


def test_a_score_of_one_product_may_be_rounded_either_way(cpu_cache):
    """With this seed plain scores of fp32 are all rounded to nearly the right ones, by luck; the kernel's are not."""
    with torch.inference_mode():
        verdict = prove(PtxDevice(cpu_cache), CATALOG, stack_of("vec128"), BY_NAME["low scores"], cpu_cache, 101)
    assert verdict.passed, verdict


def test_columns_that_ask_for_several_packets_of_an_embedding_at_once(cpu_cache, seed):
    """A lane of one warp has three neighbouring packets of 288 columns."""
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "columns", "value_token"], {}, 256)
    with torch.inference_mode():
        verdict = prove(PtxDevice(cpu_cache, seed=seed), CATALOG, stack, BY_NAME["half way"], cpu_cache, seed)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("slots", "threads"), [(5, 32), (2, 64), (6, 128), (12, 96)])
def test_teams_of_warps_take_the_tiles_of_a_small_ring(slots, threads, cpu_cache, seed):
    """Many blocks share the positions of a head; a block of one warp or of three has no second team."""
    given = {"slots": slots, "window": 2, "kb": 6, "chunk": 124}
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "stream_kv"], given, threads)
    trial = replace(BY_NAME["long"], knobs=GIVEN, threads=threads, blocks=7, starts=(Start(1024),))
    with torch.inference_mode():
        verdict = prove(PtxDevice(cpu_cache, seed=seed), CATALOG, stack, trial, cpu_cache, seed)
    assert verdict.passed, verdict


def test_an_odd_ring_is_refused_where_two_teams_take_its_tiles(cpu_cache, seed):
    """A team that had not waited for the last tile of a slot would take its phase for the next tile's."""
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "stream_kv"], {"slots": 5}, 128)
    with pytest.raises(CompileError, match="make slots even"):
        prove(PtxDevice(cpu_cache, seed=seed), CATALOG, stack, BY_NAME["132 blocks"], cpu_cache, seed)


FAULTS = [mutant for mutant in read_mutants() if mutant.trial and mutant.expect == "killed"]


@pytest.mark.parametrize("mutant", sampled([m for m in FAULTS if BY_NAME[m.trial].plain], 1), ids=lambda m: m.name)
def test_a_trial_finds_what_it_is_for_with_every_seed(mutant, cpu_cache):
    """These seeds, so that none is found by chance. `make soak` tries all faults with other ones."""
    found = judge(mutant, 0, cpu_cache)
    assert (found.fate, f"trial: {mutant.trial}" in found.how) == (FULL, True)


@pytest.mark.parametrize("mutant", sampled([m for m in FAULTS if not BY_NAME[m.trial].plain], 1), ids=lambda m: m.name)
def test_a_long_trial_finds_what_it_is_for(mutant, cpu_cache, monkeypatch):
    monkeypatch.setattr(judging, "TRIAL_SEEDS", 1)
    assert f"trial: {mutant.trial}" in judge(mutant, 0, cpu_cache).how


def test_a_fault_that_is_found_with_some_seeds_only_is_not_found(cpu_cache, monkeypatch):
    (one,) = (mutant for mutant in FAULTS if mutant.name == "ties of a warp to the higher id")
    monkeypatch.setattr(judging.Ground, "found", lambda self, trial, seed: "wrong" * (seed > 0))
    found = judge(one, 0, cpu_cache)
    assert (found.fate, found.how) == (SURVIVED, f"found with {TRIAL_SEEDS - 1} seeds of {TRIAL_SEEDS}")

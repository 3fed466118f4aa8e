"""Trials: correct stacks pass them, and each finds a fault that only its shape, values or age shows."""

import re
from dataclasses import replace

import pytest
import torch
from sampled import sampled

from common.devices.host.device import HostDevice
from common.devices.ptx.device import PtxDevice
from common.errors import CompileError
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import OLD_RING, expected, prove, text_of
from common.validate.scenarios import Start, drawn
from common.validate.trials import GIVEN, HIGH, LOW, TRIALS, chosen, not_exercised
from tests.strength.mutants import checks
from tests.strength.mutants.checks import TRIAL_SEEDS, MutantResult, check_trial
from tests.strength.mutants.mutation import read_mutants
from tests.strength.mutants.table import summary

pytestmark = pytest.mark.host
CATALOG = read_catalog()
BY_NAME = {trial.name: trial for trial in TRIALS}
STACKS = choose_stacks(CATALOG, "catalog", None, {}, 256)


def stack_of(name: str):
    return choose_stacks(CATALOG, name, None, {}, 256)[0]


@pytest.mark.parametrize(
    ("stack", "trial"),
    sampled([(stack, trial) for stack in STACKS for trial in TRIALS], 3),
    ids=lambda each: each.name,
)
def test_a_correct_stack_passes(stack, trial, host_cache, seed):
    device = PtxDevice(host_cache, seed=seed, races=True) if trial.races else HostDevice(host_cache, seed)
    with torch.inference_mode():
        verdict = prove(device, CATALOG, stack, trial, host_cache, seed)
    assert verdict.passed, verdict
    tokens, steps = text_of(CATALOG, stack, trial).tokens_per_step, sum(start.steps for start in trial.starts)
    assert verdict.steps == (steps if tokens == 1 else tokens * (steps + len(trial.starts)))  # once more with drafts


def test_a_score_of_one_product_may_be_rounded_either_way(host_cache):
    """With this seed plain scores of fp32 are all rounded to nearly the right ones, by luck; the kernel's are not."""
    with torch.inference_mode():
        verdict = prove(HostDevice(host_cache), CATALOG, stack_of("vec128"), BY_NAME["low scores"], host_cache, 101)
    assert verdict.passed, verdict


def test_columns_that_ask_for_several_packets_of_an_embedding_at_once(host_cache, seed):
    """A lane of one warp has three neighbouring packets of 288 columns."""
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "columns", "value_token"], {}, 256)
    with torch.inference_mode():
        verdict = prove(HostDevice(host_cache, seed), CATALOG, stack, BY_NAME["half way"], host_cache, seed)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("slots", "threads"), [(5, 32), (2, 64), (6, 128), (12, 96)])
def test_teams_of_warps_take_the_tiles_of_a_small_ring(slots, threads, host_cache, seed):
    """Many blocks share the positions of a head; a block of one warp or of three has no second team."""
    given = {"slots": slots, "window": 2, "kb": 6, "chunk": 124}
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "stream_kv"], given, threads)
    trial = replace(BY_NAME["long"], knobs=GIVEN, threads=threads, blocks=7, starts=(Start(1024),))
    with torch.inference_mode():
        verdict = prove(HostDevice(host_cache, seed), CATALOG, stack, trial, host_cache, seed)
    assert verdict.passed, verdict


def test_an_odd_ring_is_refused_where_two_teams_take_its_tiles(host_cache, seed):
    """A team that had not waited for the last tile of a slot would take its phase for the next tile's."""
    (stack,) = choose_stacks(CATALOG, "", ["joint_heads", "by_value", "bulk_ring", "stream_kv"], {"slots": 5}, 128)
    with pytest.raises(CompileError, match="make slots even"):
        prove(HostDevice(host_cache, seed), CATALOG, stack, BY_NAME["132 blocks"], host_cache, seed)


NAMES = (
    "wide; several turns; many blocks; long prompt; negative logits; low scores; large gates; small inputs; half way; "
    "twins; ties; equal rows; late maximum; wide, knobs low; wide, knobs high; large heads; long; many words; square; "
    "least; many tokens; 65 blocks; 132 blocks; 264 blocks; 300 blocks; races, knobs low; races, knobs as given"
)


def test_no_trial_is_missing_from_a_full_or_a_plain_validation():
    names = NAMES.split("; ")
    assert [trial.name for trial in chosen("all")] == names
    assert [trial.name for trial in chosen("plain")] == names[1:13]


FAULTS = [mutant for mutant in read_mutants() if mutant.trial]


@pytest.mark.parametrize("mutant", sampled([m for m in FAULTS if BY_NAME[m.trial].plain], 2), ids=lambda m: m.name)
def test_a_trial_finds_what_it_is_for_with_every_seed(mutant, host_cache):
    """These seeds, so that none is found by chance. `make soak` tries all faults with other ones."""
    found = check_trial(mutant, 0, host_cache)
    assert (found.seeds, found.killed) == (TRIAL_SEEDS, True)
    assert f"trial: {mutant.trial}" in found.how


@pytest.mark.parametrize("mutant", sampled([m for m in FAULTS if not BY_NAME[m.trial].plain], 1), ids=lambda m: m.name)
def test_a_long_trial_finds_what_it_is_for(mutant, host_cache, monkeypatch):
    monkeypatch.setattr(checks, "TRIAL_SEEDS", 1)
    assert f"trial: {mutant.trial}" in check_trial(mutant, 0, host_cache).how


def test_a_fault_that_is_found_with_some_seeds_only_is_not_killed():
    (one,) = (mutant for mutant in FAULTS if mutant.name == "ties of a warp to the higher id")
    lucky = MutantResult(one, "wrong", 0, False, False, seeds=TRIAL_SEEDS - 1)
    assert not lucky.killed
    assert f"found with {TRIAL_SEEDS - 1} seeds of {TRIAL_SEEDS}" in summary([lucky]).notes[-1]


@pytest.mark.parametrize("name", [name for name, v in CATALOG.variants.items() if v.loader_warps or v.requires])
def test_every_counter_of_a_ring_is_old_where_a_trial_says_so(name):
    text = text_of(CATALOG, stack_of(name), BY_NAME["square"]).text
    loader = "loader_warps = 1;" in text
    assert text.startswith(f"#define {OLD_RING} ") == loader
    assert not re.search(r"\b(tile|jobs) = 0\b|\btile\[.*\] = 0\b", text)


def test_the_knobs_of_a_trial_are_those_of_the_stack_or_the_ends_of_their_ranges():
    stack, trial = stack_of("warp_split"), BY_NAME["wide"]  # 2:6 of 8 warps is about 1:2 of 3
    ratios = {"knobs": (trial.knobs, "producers = 1; constexpr int consumers = 2")}
    assert trial.knobs == GIVEN
    assert ratios["knobs"][1] in text_of(CATALOG, stack, trial).text
    ends = {LOW: "chunk = 16;", HIGH: "chunk = 16384;"}
    for which, constant in ends.items():
        some = next(each for each in TRIALS if each.knobs == which)
        assert constant in text_of(CATALOG, stack_of("split_kv"), some).text


def test_what_a_validation_leaves_out_is_what_no_trial_of_it_covers():
    assert not_exercised(chosen("all")) == ()
    plain = not_exercised(chosen("plain"))
    assert BY_NAME["many words"].covers in plain
    assert len(not_exercised(chosen("none"))) == len(TRIALS) > len(plain)


def test_trials_fit_their_models_and_are_named_once(host_cache, seed):
    assert len(BY_NAME) == len(TRIALS)
    for trial in TRIALS:
        layout, weights, _ = expected(trial.model, trial.weights, host_cache, seed)
        for start, scenario in zip(
            trial.starts, drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed)), strict=True
        ):
            layout.check_room(start.position, start.steps)
            assert len(scenario.ids) == start.position + start.given
            assert start.barriers % 2 == 0

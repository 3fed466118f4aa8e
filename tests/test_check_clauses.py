"""Clauses of the validator that one kind of session needs: each has a fault that no other clause finds."""

import dataclasses
import math

import pytest
import torch
from fake_session import FakeSession
from test_check import MODEL, random_weights, verdict

from common.model.layout import Layout
from common.validate.check import validate
from common.validate.scenarios import MOST_STEPS, planned, scenarios
from common.validate.values import weights_of


@pytest.mark.parametrize("fault", ["history touched", "older id overwritten", "one more draft told"])
@pytest.mark.parametrize("later", ["in a second run", "when queued"])
def test_cache_and_state_of_later_runs_are_compared(seed, fault, later):
    found = verdict(seed, f"{fault} {later}").mismatch
    assert found.stage == ("cache" if fault == "history touched" else "state")
    assert ("queued" in found.note) == ("queued" in later)
    assert "differs" in found.note


@pytest.mark.parametrize("kv", ["fp8", "int8"])
def test_a_cache_below_bf16(seed, kv):
    """Its rows must be the nearest numbers with the smallest scale."""
    model = MODEL.in_formats(kv=kv)
    assert verdict(seed, model=model).passed
    for fault, stage in (
        ("next number of a row", "key"),
        ("twice the scale of a row", "key"),
        ("stale row", "attention"),
    ):
        found = verdict(seed, fault, 1, model)
        assert found.status == "MISMATCH", fault
        assert (found.mismatch.stage, found.mismatch.layer) == (stage, 1), found


@pytest.mark.parametrize("kv", ["bf16", "fp8", "int8"])
def test_a_number_half_way_is_rounded_to_the_even_one(kv, seed):
    """Both are as near; only values that are exact in fp32 are half way in float64."""
    model = dataclasses.replace(MODEL, rms_eps=2.0**-5).in_formats(kv=kv)
    weights = weights_of("half way", random_weights(model, seed), Layout(model), seed)
    starts = list(scenarios(model, seed, weights, quick=True))
    assert validate(FakeSession(model, weights), weights, starts, seed).passed
    fault = "half way rounds up" if kv == "bf16" else "half way rounds up of a row"
    found = validate(FakeSession(model, weights, fault, 1), weights, starts, seed).mismatch
    assert (found.stage, found.layer, found.tolerance) == ("value", 1, 0)
    assert "half way" in found.note
    if kv == "bf16":
        assert abs(found.got - found.want) == 2.0**-8 * 2.0 ** math.floor(math.log2(abs(found.want)))


def test_stages_that_are_not_shown_are_not_compared_and_the_cache_is(seed):
    """An engine may leave some results only; of those that it leaves each counts."""
    shown = ("lm_head", "qkv")
    assert verdict(seed, "another gate_up tap", 1).mismatch.stage == "gate_up"
    assert verdict(seed, "another gate_up tap", 1, shown=shown).passed
    for fault, at, stage in (
        ("no qkv tap", 1, "qkv"),
        ("no lm_head tap", None, "lm_head"),
        ("truncated entry", 1, "key"),
    ):
        found = verdict(seed, fault, at, shown=shown)
        assert found.status == "MISMATCH", fault
        assert found.mismatch.stage == stage, found


@pytest.mark.parametrize("positions", [1, 2, 3, 17, 18, 40])
def test_planned_starts_fit_and_reach_both_ends(positions):
    model = dataclasses.replace(MODEL, positions=positions)
    many = [planned(model, torch.Generator().manual_seed(seed), quick=False) for seed in range(300)]
    ends = {start.position + start.steps for starts in many for start in starts}
    assert max(ends) == positions
    equal = next(at for at, start in enumerate(many[0]) if start.history == "equal scores")
    for at in (1, 2, equal):  # drawn, where they can be
        drawn = {starts[at].position for starts in many}
        assert min(drawn) == (min(2, positions - 1) if at == 2 else 0), at
        assert max(drawn) == positions - max(starts[at].steps for starts in many), at
    assert sum(start.steps > 1 for start in many[0]) == (positions > 1) + (positions >= MOST_STEPS) + (positions >= 18)


def test_progress_is_told_by_step_and_scenario(seed):
    told, weights = [], random_weights(MODEL, seed)
    found = verdict(seed, on_step=lambda *step: told.append(step))
    names = [start.name for start in scenarios(MODEL, seed, weights) for _ in range(start.steps)]
    assert told == list(enumerate(names, 1))
    assert found.steps == len(told)
    assert verdict(seed, "down residual", 1, on_step=lambda *step: told.append(step)).steps == 1


def test_a_verdict_in_a_table(seed):
    columns = verdict(seed).columns()
    assert columns["verdict"] == "PASSED"
    assert columns["seed"] == seed
    assert 0 < columns["share of tolerance"] < 1
    assert "mismatch" not in columns
    wrong = verdict(seed, "down residual", 1)
    assert wrong.columns()["verdict"] == "MISMATCH"
    assert wrong.columns()["mismatch"] == str(wrong.mismatch)
    assert str(wrong).startswith("MISMATCH down layer 1 [0] is ")

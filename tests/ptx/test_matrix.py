"""The matrix of `make soak` on the PTX device: what it has, and that one of its cases passes."""

import re

import pytest
from sampled import sampled

from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import text_of
from tests.strength.ptx import TRIALS, USUAL, cases

CASES = list(cases())
QUICK = [case for case in CASES if case.trial in TRIALS[:2]]


def test_every_stack_is_there_and_the_ring_for_every_target():
    stacks = choose_stacks(read_catalog(), "catalog", None, {}, USUAL.threads)
    assert [(case.stack, case.trial) for case in CASES if case.arch == 90] == [
        (stack, trial) for stack in stacks for trial in TRIALS
    ]
    assert {case.arch for case in CASES if case.stack.name == "streaming"} == {80, 86, 89, 90, 100, 120}


def test_rings_have_two_slots():
    rings = [case for case in CASES if case.trial.covers == "least knobs" and "bulk_ring" in case.stack.variants]
    assert rings
    for case in rings:
        assert re.search(r"\bslots = 2;", text_of(read_catalog(), case.stack, case.trial).text)


@pytest.mark.host
@pytest.mark.parametrize("case", sampled(QUICK, 1), ids=str)
def test_a_case_passes(case, host_cache, seed):
    assert case.failure(seed, host_cache) == ""

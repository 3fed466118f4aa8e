"""The matrix of `make soak` on the PTX device: what it has, and that one of its cases passes."""

import re
from dataclasses import replace

import pytest
from sampled import sampled

from common.errors import Crashed
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import text_of
from tests.strength.kept import Kept
from tests.strength.ptx import TRIALS, USUAL, cases, failures

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


@pytest.mark.cpu
@pytest.mark.parametrize("case", sampled(QUICK, 4), ids=str)
def test_a_case_passes_and_is_not_tried_again(case, cpu_cache, seed, tmp_path, monkeypatch):
    file = tmp_path / "passed.jsonl"
    assert list(failures([case], seed, cpu_cache, Kept(file))) == []
    monkeypatch.setattr("tests.strength.kept.apart", None)
    assert list(failures([case], seed, cpu_cache, Kept(file))) == []


def test_what_fails_is_reported_and_tried_again(tmp_path, monkeypatch):
    found = iter(["wrong", Crashed("its process ended", "look"), ""])

    def apart(*_, **__):
        if isinstance(one := next(found), Exception):
            raise one
        return one

    monkeypatch.setattr("tests.strength.kept.apart", apart)
    kept, (case, *_) = Kept(tmp_path / "passed.jsonl"), CASES
    assert [list(failures([case], 1, tmp_path, kept)) for _ in range(3)] == [
        [f"{case}: wrong"],
        [f"{case}: its process ended; look"],
        [],
    ]
    assert kept.get(case.key) == ""


def test_a_case_depends_on_its_text_target_grid_and_steps():
    one = CASES[0]
    others = [replace(one, arch=86), *(replace(one, trial=trial) for trial in TRIALS[2:])]
    assert len({one.key, *(other.key for other in others)}) == 1 + len(others)
    assert replace(one, trial=TRIALS[1]).key == one.key  # a stack without knobs


def test_a_line_that_a_stop_has_torn_costs_its_own_result(tmp_path):
    file = tmp_path / "passed.jsonl"
    Kept(file).put("a", 1)
    with file.open("a") as torn:
        torn.write('["b", ')
    Kept(file).put("c", [3])
    kept = Kept(file)
    assert [kept.get(key) for key in "abc"] == [1, None, [3]]

"""A stranger with bad intent: a sample of the hostile inputs that `make soak` tries by the hundred."""

import random
import re
from itertools import islice

import pytest

from common import ROOT
from common.errors import LabError
from common.record.store import Store
from experiments.lab import Lab
from experiments.run.steps import LabStack
from tests.strength.soak.hostile import python_calls
from tests.strength.soak.hostile.attempt import Attempt, Case, violation, violations
from tests.strength.soak.hostile.command_lines import commands, flags, options, runs
from tests.strength.soak.hostile.environments import environments


@pytest.fixture
def watched(tmp_path):
    """A folder with a store that no refused command may change."""
    Store(tmp_path / "store" / "records.jsonl").append({"kind": "kept"})
    return tmp_path / "store"


@pytest.fixture
def fixed(cpu_cache, watched):
    results = watched / "records.jsonl"
    return ("device=ptx", "timing=none", "archs=[]", f"cache={cpu_cache}", f"results={results}")


@pytest.mark.parametrize(("kind", "number"), [(runs, 15), (commands, 15), (options, 9), (flags, 4)])
def test_a_wrong_command_line_is_refused_in_one_line(kind, number, fixed, watched, seed):
    assert violations(list(islice(kind(random.Random(seed), fixed), number)), watched) == []


def test_a_wrong_argument_in_python_is_a_mistake_of_one_line(fixed, seed):
    assert python_calls.violations(120, Lab(*fixed, model="tiny"), random.Random(seed)) == []


def test_every_call_of_the_manual_gets_wrong_arguments():
    shown = re.findall(r"^\| `(lab|stack)\.(\w+)\(", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE)
    tried = {"lab": python_calls.SURFACE[Lab], "stack": python_calls.SURFACE[LabStack]}
    assert len(shown) > 8
    assert [call for owner, call in shown if call not in tried[owner]] == []


def test_the_rule_for_python_finds_each_way_to_break_it(fixed):
    def fails(error: Exception) -> str:
        def call(*_: object) -> None:
            raise error

        return python_calls.broken("a call", call)

    assert fails(LabError("cause", "remedy")) == ""
    assert fails(TypeError("unhashable")) == "a call: TypeError: unhashable"
    assert fails(SystemExit(2)) == "a call: SystemExit: 2"


def test_a_mistake_is_explained_in_any_environment(fixed, watched, seed):
    assert violations(list(islice(environments(random.Random(seed), fixed), 4)), watched) == []


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(0, "", "error: a; b\n"),
        Attempt(2, "text", "error: a; b\n"),
        Attempt(2, "", ""),
        Attempt(2, "", "error: a; b\nerror: c; d\n"),
        Attempt(2, "", "error: without what to do\n"),
        Attempt(2, "", "Traceback (most recent call last):\nerror: a; b\n"),
        Attempt(2, "", "error: a; b\n", ("records.jsonl",)),
    ],
)
def test_the_rule_finds_each_way_to_break_it(attempt):
    assert violation(Case("a case", ()), attempt)
    assert violation(Case("a case", ()), Attempt(2, "", "note: something\nerror: a; b\n")) is None

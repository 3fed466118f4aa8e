"""Mutation test of the validator: every fault of a sample is found.

`make soak` checks all mutants.

The list is checked for completeness: each barrier, named barrier and wait of the sources has a mutant without it.
"""

import os
import re
from pathlib import Path

import pytest
from sampled import seed_for

from common import ROOT
from common.errors import LabError
from common.stacks.catalog import read_catalog
from tests.strength.mutants.generated import mutants_of
from tests.strength.mutants.judge import judge_each
from tests.strength.mutants.mutation import Edit, apply, read_mutants, sample, source_of

pytestmark = pytest.mark.cpu
MUTANTS = read_mutants()
SAMPLE = 4  # mutants checked in a test run, each of another class
SOURCES = [*(ROOT / "common" / "kernel").glob("*.cuh"), *(ROOT / "variants").glob("*.cu")]
# graph and tensor_scores have a line each, which has nothing to edit; the others change no result, only counted bytes.
WITHOUT_MUTANT = {"graph", "tensor_scores", "l2_prefetch", "head_prefetch", "hot_l2"}


def test_text_to_edit_is_in_the_source():
    """An error names the mutant whose text is gone."""
    assert all(source_of(mutant).text for mutant in MUTANTS)


def test_there_are_mutants_of_every_variant():
    assert len(MUTANTS) >= 80
    edited = {Path(edit.file).stem for mutant in MUTANTS for edit in mutant.edits}
    variants = set(read_catalog().variants)
    assert variants - edited - WITHOUT_MUTANT - {"vec128", "multi_step"} == set()
    assert {name for mutant in MUTANTS for name in mutant.stack} >= variants - {"baseline", "hot_l2"}


def test_a_reason_names_tests_that_are_there():
    named = {path for mutant in MUTANTS for path in re.findall(r"tests/\S+\.py", mutant.reason)}
    assert named
    assert all((ROOT / path).exists() for path in named)


CALLS = ("block_barrier();", "named_sync(", "named_arrive(", "copy_wait<", "copy_commit();")


@pytest.mark.parametrize("path", [each for each in SOURCES if each.stem != "asm"], ids=lambda path: path.stem)
@pytest.mark.parametrize("call", CALLS)
def test_every_wait_is_dropped_by_a_mutant(path, call):
    """By hand or by an operator: `make soak` judges all of the first, and of the second all that drop a wait."""
    text, name = path.read_text(), str(path.relative_to(ROOT))
    dropping = [mutant for mutant in mutants_of(name, text) if mutant.kind == "synchronization dropped"]
    edits = [edit for mutant in (*MUTANTS, *dropping) for edit in mutant.edits if edit.file == name]
    dropped = {site(text, edit, call) for edit in edits if call in edit.old and call not in edit.new}
    assert dropped == set(range(text.count(call))), f"{name}: sites of {call} that a mutant drops"


def site(text: str, edit: Edit, call: str) -> int:
    """Index, from 0, of the occurrence of `call` in the text that `edit` replaces."""
    before = edit.old.join(text.split(edit.old)[: edit.nth or 1])
    return before.count(call)


@pytest.mark.parametrize(
    ("edit", "remedy"),
    [
        (Edit("a.cu", "gone", ""), "0 times, not 1"),
        (Edit("a.cu", "x", "", of=2), "1 times"),
        (Edit("b.cu", "x", ""), "0 times"),
    ],
)
def test_edit_of_missing_text_is_refused(edit, remedy):
    with pytest.raises(LabError, match=remedy):
        apply('#line 1 "a.cu"\nx y\n#line 1 "b.cu"\ny y\n', edit, "name")


def test_edit_changes_only_its_file_and_occurrence():
    text = '#line 1 "a.cu"\ny\n#line 1 "b.cu"\ny y\n#line 2 "a.cu"\ny y\n'
    assert apply(text, Edit("a.cu", "y", "z", nth=2, of=3), "name") == text[:-4] + "z y\n"
    assert apply(text, Edit("b.cu", "y", "z", of=2), "name") == text.replace("y y", "z z", 1)


def test_a_sample_has_every_class_and_no_mutant_twice(seed):
    classes = {mutant.kind for mutant in MUTANTS}
    assert len({mutant.kind for mutant in sample(MUTANTS, SAMPLE, seed)}) == SAMPLE < len(classes)
    drawn = sample(MUTANTS, len(classes) + 9, seed)
    assert len(drawn) == len(classes) + 9
    assert {mutant.kind for mutant in drawn} == classes
    assert all(drawn.count(mutant) == 1 for mutant in drawn)
    everything = sample(MUTANTS, len(MUTANTS) + 1, seed)
    assert len(everything) == len(MUTANTS)
    assert all(mutant in everything for mutant in MUTANTS)


@pytest.mark.timeout(1800)  # an idle machine needs a tenth of that
def test_every_fault_is_found(cpu_cache):
    """A fresh sample, each mutant checked once."""
    seed = seed_for("mutants")
    tried = sample([mutant for mutant in MUTANTS if mutant.expect != "equivalent"], SAMPLE, seed)
    found = judge_each(tried, seed, cpu_cache, os.cpu_count() or 1)
    assert not [(one.title, one.fate, one.how) for one in found if not one.found], seed

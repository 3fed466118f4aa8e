"""Holes of coverage, their reasons and the table, from counts made by hand; what a coverage run refuses."""

import re

import pytest

from common import ROOT
from tests.strength.coverage.__main__ import main
from tests.strength.coverage.covered import Executed
from tests.strength.coverage.holes import BRANCHES, LINES, Item, items, listed, reason_for, table
from tests.strength.excuses import excuses

WARP_SPLIT, BARRIER, ENTRY = "variants/warp_split.cu", "common/kernel/barrier.cuh", ("entry", 2)


def at(file: str, text: str) -> tuple[str, int]:
    """The only line of `file` that has `text`."""
    (found,) = (number for number, line in enumerate((ROOT / file).read_text().splitlines(), 1) if text in line)
    return file, found


FIRST_OF_ROW = at(WARP_SPLIT, "if (lane() == 0) emit")
REPORT, STAGE = at(BARRIER, "if (polls == spin_limit) report();"), at(BARRIER, "mine[0] = stage;")


def holes(found) -> set[tuple[str, tuple]]:
    return {(item.kind, item.places[0]) for item, reached in items(found).items() if not reached}


def one_at(line: tuple[str, int], found) -> Item:
    (item,) = (item for item in items(found) if (item.file, item.line) == line)
    return item


def test_a_line_is_executed_if_a_thread_executed_it_anywhere():
    one, other = (FIRST_OF_ROW, ("x", 1), ENTRY), (FIRST_OF_ROW, ("x", 2), ENTRY)
    assert holes({one: Executed(0), other: Executed(0)}) == {(LINES, one)}
    assert holes({one: Executed(0), other: Executed(3)}) == set()


def test_branches_go_both_ways_at_each_place_that_is_reached():
    one, other = (FIRST_OF_ROW, ("x", 1), ENTRY), (FIRST_OF_ROW, ("x", 2), ENTRY)
    both = Executed(9, 4, 5)
    assert holes({one: both, other: both}) == set()
    assert holes({one: both, other: Executed(9, 9, 0)}) == {(BRANCHES, other)}
    assert holes({one: both, other: Executed(9, 0, 9)}) == {(BRANCHES, other)}
    assert holes({one: both, other: Executed(0, 0, 0)}) == set()


def test_branches_of_the_compiler_are_left_out():
    alone, without_condition = (FIRST_OF_ROW,), (STAGE, ENTRY)
    assert holes({alone: Executed(9, 9, 0), without_condition: Executed(9, 9, 0)}) == set()


def test_other_files_and_rows_without_a_line_are_left_out():
    assert items({(("entry", 2),): Executed(0), ((BARRIER, 0), ENTRY): Executed(0)}) == {}


def test_a_reason_is_about_its_line_and_what_only_this_line_calls():
    (why,) = excuses(BARRIER, "not executed")[REPORT[1]]
    called, elsewhere, other = (STAGE, REPORT, ENTRY), (STAGE, ("x", 1), ENTRY), (STAGE, FIRST_OF_ROW, ENTRY)
    assert reason_for(one_at(STAGE, {called: Executed(0)})) == why
    for places in ([elsewhere], [other], [called, elsewhere]):
        assert reason_for(one_at(STAGE, dict.fromkeys(places, Executed(0)))) == ""


def test_an_excuse_is_beside_its_code_or_above_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.strength.excuses.ROOT", tmp_path)
    (tmp_path / "x.cu").write_text(
        "a; // why: one\n// why: two\n// more\n\n// other: three\nb; // why: four\nc; // why\n"
    )
    assert excuses("x.cu", "why") == {1: ["one"], 6: ["two", "four"]}


def test_the_table_counts_each_stack_and_lists_what_is_missing():
    done, missing = (FIRST_OF_ROW, ENTRY), (STAGE, REPORT, ENTRY)
    found = {done: Executed(9, 9, 0), missing: Executed(0)}
    (why,) = excuses(BARRIER, "not executed")[REPORT[1]]
    made = table([("one", found), ("two", found)])
    rows = {row["file"]: row for row in made.rows}
    assert rows[WARP_SPLIT] == {
        "file": WARP_SPLIT, "lines": 2, "lines %": 100, "branches": 2, "branches %": 0, "never": 2, "no reason": 2
    }  # fmt: skip
    assert (rows[BARRIER]["never"], rows[BARRIER]["no reason"]) == (2 * 2, 0)  # also the line of the call
    assert (rows["all"]["lines"], rows["all"]["lines %"]) == (2 * 3, 33.3)
    (line,) = listed([one_at(STAGE, {missing: Executed(0)})])
    assert line == f"{BARRIER}:{STAGE[1]}: mine[0] = stage;: never executed"
    assert f"{line}: {why} [one, two]" in made.notes
    assert any(": a branch always goes one way" in note and "no reason given [one, two]" in note for note in made.notes)


@pytest.mark.parametrize("given", ["experiment=counts", "resume=true"])
def test_what_a_coverage_run_cannot_do_is_refused(given: str, capsys):
    assert main([given]) == 2
    assert re.fullmatch(r"error: .*; leave .*\n", capsys.readouterr().err)

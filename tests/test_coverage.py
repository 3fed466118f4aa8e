"""The table of coverage, its reasons and its tracefile, from data made by hand; what a coverage build refuses."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
from made_records import evidence, result

from common import ROOT
from common.errors import LabError
from experiments.report import blocks
from tests.strength.coverage.__main__ import main
from tests.strength.coverage.covered import Covered
from tests.strength.coverage.gcov import Executed
from tests.strength.coverage.items import ABSENT, FOLDERS, LINE, Item, holes, items
from tests.strength.coverage.reasons import FILE, Reason, read_reasons, unexplained
from tests.strength.coverage.statements import statements
from tests.strength.coverage.table import table, tracefile
from tests.strength.coverage.turns import Loop

WARP_SPLIT, CP_ASYNC = "variants/warp_split.cu", "variants/cp_async.cu"


def made(file: str, load_bytes: str = "", knobs=None, lines=(), branches=(), loops=(), turns=()) -> Covered:
    executed = Executed(*(defaultdict(int, pairs) for pairs in (lines, branches, turns)))
    return Covered((Path(file).stem,), knobs or {}, load_bytes, tuple(loops), executed)


def number(file: str, text: str) -> int:
    """Number of the only line of `file` that has `text`."""
    (found,) = (at for at, line in enumerate((ROOT / file).read_text().splitlines(), 1) if text in line)
    return found


def test_statements_are_what_leaves_code():
    text = """// for (;;) { never; }
struct A {
  static constexpr int n = 3;
  const float *x;
  static constexpr bool g(int a) { return a > 2; }
  static int f(int a) {
    constexpr int two = 2; using B = int;
    static_assert(two == 2, "a; b { c");
    float sums[3];
    if constexpr (two == 2)
      return a +
             two;
    else
      g(a);
    UNROLL
    for (int i = 0; i < a; ++i) sums[i] = 0;
    const auto h = [&](int i) {
      return A{{i}, 0};
    };
    ++a;
  }
};
#define DO(x) \\
  g(x);
#ifdef __CUDACC__
int cuda() { return 1; }
#else
int host() { return 2; }
#endif
"""
    want = [(25, 25), (11, 12), (14, 14), (16, 16), (17, 17), (18, 18), (20, 20), (28, 28)]
    assert [(lines.start, lines.stop - 1) for lines in statements(text)] == want


def test_every_statement_of_a_function_without_instance_is_a_hole():
    found = items([made(WARP_SPLIT, lines={(WARP_SPLIT, 31): 5})])
    absent = {item.line for item in holes(found) if (item.file, item.what) == (WARP_SPLIT, ABSENT)}
    assert number(WARP_SPLIT, "Base::matvec(c, job, emit);") in absent
    assert number(WARP_SPLIT, "const int consumer = warp() - producers;") in absent
    assert number(WARP_SPLIT, "static constexpr int slots = 2") not in absent
    assert all(item.what == ABSENT for item in holes(found))  # line 31 itself was executed


def test_instances_are_told_apart_by_width_and_by_knobs_that_are_no_sizes():
    few = made(CP_ASYNC, "16", {"cp_async": {"stages": 4, "tile": 1}}, lines={(CP_ASYNC, 21): 0})
    more = made(CP_ASYNC, "8", {"cp_async": {"stages": 2, "tile": 1}}, lines={(CP_ASYNC, 21): 7})
    size = made("variants/split_kv.cu", "8", {"split_kv": {"chunk": 64}}, lines={("variants/split_kv.cu", 20): 1})
    found = {item: count for item, count in items([few, more, more, size]).items() if item.what == LINE}
    assert found == {
        Item(CP_ASYNC, 21, LINE, "16-byte loads"): 0,
        Item(CP_ASYNC, 21, LINE, "8-byte loads"): 14,
        Item(CP_ASYNC, 21, LINE, "stages=4"): 0,
        Item(CP_ASYNC, 21, LINE, "stages=2"): 14,
        Item(CP_ASYNC, 21, LINE, "tile=1"): 14,
        Item("variants/split_kv.cu", 20, LINE, "8-byte loads"): 1,
    }


def test_the_table_counts_lines_branches_and_classes_and_lists_what_is_missing():
    at = number(WARP_SPLIT, "if (walk.row(item, consumer) >= job.rows) continue;")
    loop = Loop("loop_x", WARP_SPLIT, at - 1, strided=True)
    other = Loop("loop_of_no_instance", WARP_SPLIT, at, strided=True)
    program = made(
        WARP_SPLIT,
        "8",
        lines={(WARP_SPLIT, at): 9, (WARP_SPLIT, at - 1): 9, ("constants", 1): 1},
        branches={(WARP_SPLIT, at, 2, 0): 0, (WARP_SPLIT, at, 2, 1): 9},
        loops=[loop, other],
        turns={("loop_x", "one"): 2, ("loop_x", "partial"): 0},
    )
    found = items([program])
    missing = [item for item in holes(found) if item.what != ABSENT]
    assert {item.what for item in missing} == {
        "0 turns",
        "2 turns",
        "more turns",
        "partial last turn",
        "branch 1 of 2",
    }
    why = Reason(WARP_SPLIT, missing[-1].text, ("branch 1 of 2",), "because")
    (row,) = (row for row in table(found, [why]).rows if row["file"] == WARP_SPLIT)
    assert (row["branches"], row["branches %"], row["loop classes"], row["loop classes %"]) == (2, 50, 5, 20)
    assert row["never"] - row["no reason"] == 1
    notes = table(found, [why]).notes
    assert f"never: {WARP_SPLIT}:{at}: {missing[-1].text}: branch 1 of 2 [8-byte loads]: because" in notes
    assert any("no reason given" in note and "0 turns" in note for note in notes)


def test_a_reason_explains_its_own_line_and_nothing_else():
    hole = Item(WARP_SPLIT, number(WARP_SPLIT, "if (lane() == 0) emit"), "branch 1 of 2", "")
    text = "if (lane() == 0) emit(walk.row(item, consumer), sums);"
    assert unexplained([hole], [Reason(WARP_SPLIT, text, ("branch 1 of 2",), "x")]) == []
    assert unexplained([hole], [Reason(WARP_SPLIT, text, (), "x")]) == []
    assert unexplained([hole], [Reason(WARP_SPLIT, text, ("branch 2 of 2",), "x")]) == [hole]
    assert unexplained([hole], [Reason(CP_ASYNC, text, (), "x")]) == [hole]
    assert unexplained([hole], [Reason(WARP_SPLIT, text[:-1], (), "x")]) == [hole]


def test_every_reason_is_of_a_line_that_exists():
    for reason in read_reasons(FILE):
        assert reason.file.startswith(FOLDERS)
        lines = [line.strip() for line in (ROOT / reason.file).read_text().splitlines()]
        assert reason.line in lines, f"{reason.file} has no line {reason.line!r}"


@pytest.mark.parametrize("entry", ["reason: x", "lines: [x]", "lines: [x], reason: y, never: [line], when: z"])
def test_a_reason_that_is_not_complete_is_refused(tmp_path: Path, entry: str):
    file = tmp_path / "reasons.yaml"
    file.write_text(f"variants/x.cu:\n  - {{{entry}}}\n")
    with pytest.raises(LabError, match="give lines, reason, and never"):
        read_reasons(file)


def test_the_tracefile_is_what_lcov_reads():
    found = {
        Item(CP_ASYNC, 21, LINE, "tile=1"): 3,
        Item(CP_ASYNC, 21, LINE, "tile=2"): 4,
        Item(CP_ASYNC, 21, "branch 1 of 2", ""): 0,
        Item(CP_ASYNC, 21, "2 turns", ""): 5,
        Item(CP_ASYNC, 24, ABSENT, ""): 0,
    }
    assert list(tracefile(found)) == [
        f"SF:{CP_ASYNC}",
        "DA:21,7",
        "BRDA:21,0,0,5",
        "BRDA:21,0,1,0",
        "DA:24,0",
        "end_of_record",
    ]


@pytest.mark.parametrize(("left", "told"), [(0, "everything else has its reason"), (3, "**3 others have no reason**")])
def test_the_sentence_says_what_has_no_reason(left: int, told: str):
    shares = {"lines": 1200, "lines %": 100.0, "branches": 300, "branches %": 98.6, "loop classes": 9}
    row = {"file": "all", **shares, "loop classes %": 50.0, "never": 8, "no reason": left}
    known = evidence(result("coverage", "counted", [row]) | {"stacks": ["a", "b"]})
    text = blocks.make("sentence:coverage", known)
    assert "2 stacks executes 100 % of 1,200 lines, 98.6 % of 300 branches, 50 % of 9 loop classes" in text
    assert told in text


@pytest.mark.parametrize("given", ["experiment=counts", "reproduce=x", "resume=true"])
def test_what_a_coverage_build_cannot_do_is_refused(given: str, capsys):
    assert main([given]) == 2
    assert re.fullmatch(r"error: .*; leave .*\n", capsys.readouterr().err)

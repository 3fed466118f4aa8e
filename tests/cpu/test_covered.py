"""Coverage of kernels, against lines, branches and turns counted by hand."""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from bare_kernel import bare_kernel

from common.compile.source import Source
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.record.store import Store
from tests.strength.coverage import gcov
from tests.strength.coverage.__main__ import main
from tests.strength.coverage.covered import Covered, CoveredDevice, covered
from tests.strength.coverage.turns import CLASSES, count_turns

pytestmark = pytest.mark.cpu
THREADS = 64

# Each loop with the classes of its executions by 64 threads in 2 warps, by hand. Shared: its last turn can be partial.
LOOPS = {
    "for (int i = 0; i < 0; ++i) out[0] = 1;": "none",
    "for (int i = 0; i < port::thread() % 2; ++i) out[0] = 1;": "none one",
    "for (int i = 0; i < port::thread() % 4; ++i) { out[0] = 1; }": "none one two several",
    "for (int i = lane(); i < 24; i += 32) out[0] = 1;": "none one / shared",  # no lane takes a second turn
    "for (int i = lane(); i < 32; i += 32) out[0] = 1;": "one / shared",
    "for (int i = lane(); i < 64; i += 32) out[0] = 1;": "two / shared",  # the last turn is whole
    "for (int i = lane(); i < 63; i += 32) out[0] = 1;": "one two partial / shared",
    "for (int i = 8 * lane(); i < 8 * 33; i += 8 * 32) out[0] = 1;": "one two partial / shared",
    "for (int i = port::thread(); i < 3 * 64; i += 64) out[0] = 1;": "several / shared",
    "for (int i = port::thread(); i < 2 * 64 + 1; i += 64) out[0] = 1;": "two several partial / shared",
    "for (int i = warp(); i < 3; i += 2) out[0] = 1;": "one two partial / shared",
    # Thread 0 does something else: it takes 64 turns, and the other 63 take two each.
    "for (int i = (port::thread() - 1) * 2; i < 4 * 63; i += 63 * 2) out[0] = 1;": "two several / shared",
    "for (int i = (port::thread() - 1) * 2; i < 3 * 63; i += 63 * 2) out[0] = 1;": "one two partial / shared",
    "for (int i = 0; i < 5; ++i) if (i == 1) break;": "two",
    "for (int i = 0; i < 3; ++i) { if (i == 1) continue; out[0] = 1; }": "several",
    "for (int i = 0;;) { if (++i == 2) break; }": "two",
    "for (int i = 0;; ++i) if (i == 0) break;": "one",
    "for (int i = 0, j = 4; i < j; ++i, --j) out[0] = 1;": "two",
    "UNROLL for (int i = 0; i < 3; ++i) out[0] = 1;": "several",
    "{ int i = 2; while (i > 0) --i; }": "two",
    "if (lane() == 0) for (int i = 0; i < 1; ++i) out[0] = 1; else out[1] = 1;": "one",
    "[&] { for (int i = 0; i < 9; ++i) if (i == 0) return; }();": "one",
    'for (char s[] = "for (;;) {", *i = s; *i; ++i) out[0] = 1; // for (;;': "several",
    "/* while */ for (int i = 0; i < 2; ++i) /* do */ { out[0] = 1; }": "two",
    "for (int i = (1 > 0 ? 0 : 9); i < (1 > 0 ? 1 : 9); ++i) out[0] = 1;": "one",
}


@pytest.fixture
def run(cpu_cache: Path, tmp_path: Path, tiny: Model):
    """run(body, times): the only program there is, after a block of 64 threads has run it that often."""

    def run_(body: str, times: int = 1) -> Covered:
        source, layout = bare_kernel(tiny, body, threads=THREADS), Layout(tiny)
        weights = torch.ones(layout.weights_size).bfloat16()
        for _ in range(times):  # a new device each time, as in a new process
            device = CoveredDevice(cpu_cache, tmp_path)
            with closing(device.session(device.compile(source), weights, 1)) as session:
                session.reset([1], 0)
                session.run()
        (program,) = covered(tmp_path)
        return program

    return run_


def classes(program: Covered) -> dict[int, set[str]]:
    """Classes that were seen, by line of the body."""
    found: dict[int, set[str]] = {loop.line: set() for loop in program.loops if loop.file == "test"}
    for loop in program.loops:
        if loop.file == "test":
            found[loop.line] |= {name for name in CLASSES if program.executed.turns[loop.name, name]}
    return found


def test_classes_of_turns_are_those_counted_by_hand(run):
    program = run("\n".join(LOOPS))
    want = {number: set(names.partition(" / ")[0].split()) for number, names in enumerate(LOOPS.values(), 1)}
    assert classes(program) == want
    shared = {number for number, names in enumerate(LOOPS.values(), 1) if names.endswith(" / shared")}
    assert {loop.line for loop in program.loops if loop.file == "test" and loop.strided} == shared


def test_nested_loops_count_their_own_turns(run):
    assert classes(run("for (int i = 0; i < 2; ++i)\n  for (int j = 0; j < i; ++j)\n    out[0] = 1;")) == {
        1: {"two"},
        2: {"none", "one"},
    }


def test_instances_of_a_template_are_told_apart(run):
    """A lambda that is instantiated with two types has its branches twice, as the text of a stage has."""
    body = "const auto f = [&](auto n) {\n  if (n > 1.5)\n    out[0] = 1;\n};\nf(1);\nf(2.0);"
    done = run(body).executed
    assert [done.branches["test", 2, 2, at] for at in (0, 1)] == [THREADS, THREADS]
    assert done.lines["test", 3] == THREADS


def test_lines_and_branches_are_counted_over_sessions(run):
    body = (
        "out[0] = 1;\nif (port::thread() < 10)\n  out[1] = 1;\nelse\n  out[2] = 1;\nif (port::block())\n  out[3] = 1;"
    )
    done = run(body, times=3).executed
    assert [done.lines["test", line] for line in (1, 3, 5, 7)] == [3 * 64, 3 * 10, 3 * 54, 0]
    assert [done.branches["test", 2, 2, at] for at in (0, 1)] == [3 * 10, 3 * 54]
    assert [done.branches["test", 6, 2, at] for at in (0, 1)] == [0, 3 * 64]


def test_every_line_keeps_its_number(tiny: Model):
    source: Source = bare_kernel(tiny, "for (int i = 0;\n     i < port::thread();\n     ++i) {\n  out[0] = 1;\n}")
    text, loops = count_turns(source.text)
    _, *lines = text.splitlines()
    assert len(lines) == len(source.text.splitlines())
    assert lines.index("  out[0] = 1;") == source.text.splitlines().index("  out[0] = 1;")
    assert [(loop.file, loop.line) for loop in loops if loop.file == "test"] == [("test", 1)]


def test_a_loop_over_an_array_has_no_classes(tiny: Model):
    text, loops = count_turns(bare_kernel(tiny, "for (int i : {1, 2}) out[i] = 1;").text)
    assert "for (int i : {1, 2}) out[i] = 1;" in text
    assert not [loop for loop in loops if loop.file == "test"]


def test_a_loop_of_another_form_is_refused(tiny: Model):
    body = "do { out[0] = 1; } while (false);"
    with pytest.raises(LabError, match=r"^test:1: coverage cannot count the turns of this loop; write it as for"):
        count_turns(bare_kernel(tiny, body).text)


def test_a_machine_without_gcov_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="coverage needs gcov, which is not installed; install it"):
        gcov.tool()


def test_a_command_leaves_a_table_a_record_and_a_file_for_a_browser(cpu_cache, tmp_path, capsys):
    given = ["variant=redundant_rmsnorm", "model=tiny", "validate=quick", f"cache={cpu_cache}"]
    results = tmp_path / "records.jsonl"
    assert main([*given, f"results={results}"]) == 0
    (record,) = Store(results).records()  # of the table only: the kernel is not the one that a run validates
    assert (record["kind"], record["stacks"]) == ("coverage", ["redundant_rmsnorm"])
    rows = {row["file"]: row for row in record["table"]}
    assert rows["variants/redundant_rmsnorm.cu"]["lines %"] == 100
    assert 0 < rows["all"]["loop classes %"] < 100  # no loop of a tiny model takes a second turn
    assert "SF:variants/redundant_rmsnorm.cu" in (tmp_path / "coverage" / "coverage.info").read_text()
    assert [path.name for path in (tmp_path / "coverage").iterdir()] == ["coverage.info"]
    assert "common/kernel/norm.cuh" in capsys.readouterr().out

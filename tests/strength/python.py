"""Mutants of the Python that judges kernels: of the validator, a run's steps, shapes, formats and packing.

    python -m tests.strength.python [sample=N] [only=TEXT] [seed=N] [processes=N]

sample, only: some of them, those whose title has TEXT. The tests of a mutant's module judge it, in a copy of the lab.
The exit code is 1 if they find less than GOAL.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from tests.strength.command import command

GOAL = 0.9  # the rest computes the same, such as `<=` where both are never equal
TIMEOUT = 300.0  # seconds of one mutant's tests: a loop may never end
# Tests that judge a module, the quickest first.
JUDGES: Mapping[str, tuple[str, ...]] = {
    "common/validate/check.py": ("test_check", "test_check_clauses", "test_queued", "test_fake_drafts"),
    "common/validate/drafts.py": ("test_fake_drafts",),
    "common/validate/prove.py": ("test_fake_prove", "test_tried", "test_values"),
    "common/validate/reference.py": ("test_check", "test_past", "test_reference", "test_format"),
    "common/validate/rounding.py": ("test_rounding", "test_values", "test_check"),
    "common/validate/scenarios.py": ("test_check", "test_values", "test_past"),
    "common/validate/snapshot.py": ("test_check", "test_queued", "test_fake_drafts"),
    "common/validate/tolerances.py": ("test_check", "test_values"),
    "common/validate/trials.py": ("test_tried", "test_fake_prove", "test_values", "test_format"),
    "common/validate/values.py": ("test_values", "test_fake_prove", "test_check"),
    "common/validate/verdict.py": ("test_check", "test_check_clauses"),
    "common/model/format.py": ("test_rounding", "test_format"),
    "common/model/quantization.py": ("test_quantization",),
    "common/model/shapes.py": ("test_bad_stacks", "test_format", "test_estimate"),
    "experiments/run/steps.py": ("test_tried", "cpu/test_results"),
}
SHAPES = "common/validate/trials.py"  # other numbers there are other trials, and not wrong
ALIKE = "==,!= <,<= >,>= is,is_not in,not_in +,- *,/ &,| <<,>> min,max minimum,maximum amin,amax any,all"
PAIRS = [pair.replace("_", " ").split(",") for pair in ALIKE.split()]
OTHERS = {"//": "*", "%": "//"} | {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutant:
    """A change of `file`: `new` in place of `old`, which begins at offset `at`. kind: its operator."""

    file: str
    line: int
    at: int
    kind: str
    old: str
    new: str

    def __str__(self) -> str:
        shown = " ".join(f"{self.old} -> {self.new}".split())
        return f"{self.file}:{self.line} {self.kind}: {shown[:160]}"

    def applied(self) -> str:
        """The changed text of its file."""
        text = (ROOT / self.file).read_text()
        return text[: self.at] + self.new + text[self.at + len(self.old) :]


class Operators:
    """The mutants of one file with this text."""

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text
        self._starts = [0]  # of lines
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        for node in self._executed(ast.parse(self._text)):
            for kind, start, end, new in self._changes(node):
                yield Mutant(self._file, node.lineno, start, kind, self._text[start:end], new)

    def _executed(self, node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
        """Nodes with an effect: no annotation, no decorator, no text of a message or a docstring."""
        skipped = (ast.JoinedStr, ast.arg, ast.Import, ast.ImportFrom, ast.Raise)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or name in ("annotation", "returns", "decorator_list"):
                    continue
                if isinstance(child, ast.expr | ast.stmt):
                    yield child
                if not isinstance(child, skipped):
                    yield from self._executed(child)

    def _changes(self, node: ast.expr | ast.stmt) -> Iterator[tuple[str, int, int, str]]:
        start, end = self._span(node)
        match node:
            case ast.Expr(ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Raise() | ast.Continue():
                yield "left out", start, end, "pass"
            case ast.If(test) | ast.IfExp(test) | ast.While(test):
                yield from self._negated(test)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                for test in (test for each in node.generators for test in each.ifs):
                    yield from self._negated(test)
            case ast.UnaryOp(ast.Not(), operand):
                yield "not", start, end, self._of(operand)
            case ast.BoolOp(op, values):
                yield from self._smaller(values, "operand", start, end, " and " if isinstance(op, ast.And) else " or ")
            case ast.Compare(left, [_], [right]):
                yield from self._between(left, right, "compared")
            case ast.BinOp(left, _, right):
                yield from self._between(left, right, "arithmetic")
            case ast.Constant(bool() as value):
                yield "constant", start, end, str(not value)
            case ast.Constant(int() | float() as value) if self._file != SHAPES:
                yield "constant", start, end, repr(2 * value or 1)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in OTHERS:
                yield "name", end - len(name), end, OTHERS[name]
            case ast.Tuple(elts, ast.Load()) | ast.List(elts, ast.Load()) | ast.Set(elts) if len(elts) > 1:
                if self._text[start] + self._text[end - 1] in ("()", "[]", "{}"):
                    yield from self._smaller(elts, "smaller", start + 1, end - 1, ", ", ",")
            case ast.Call(ast.Name("min" | "max"), [first, second]):
                yield from (("smaller", start, end, f"({self._of(each)})") for each in (first, second))
            case ast.Call(ast.Name("chain"), args) if len(args) > 1:
                yield from self._smaller(args, "smaller", self._span(args[0])[0], end - 1, ", ")

    def _negated(self, test: ast.expr) -> Iterator[tuple[str, int, int, str]]:
        if not isinstance(test, ast.UnaryOp | ast.Compare) and self._of(test) != "TYPE_CHECKING":
            yield "not", *self._span(test), f"(not ({self._of(test)}))"

    def _between(self, left: ast.expr, right: ast.expr, kind: str) -> Iterator[tuple[str, int, int, str]]:
        """The operator between two operands, with what else lies there, such as a bracket, as it is."""
        start, end = self._span(left)[1], self._span(right)[0]
        between = self._text[start:end]
        word = between.replace("(", " ").replace(")", " ").strip()
        if word in OTHERS:
            yield kind, start, end, between.replace(word, OTHERS[word])

    def _smaller(
        self, parts: list[ast.expr], kind: str, start: int, end: int, joint: str, tail: str = ""
    ) -> Iterator[tuple[str, int, int, str]]:
        """Each of a few parts left out, of many the first and the last."""
        for out in range(len(parts)) if len(parts) < 4 else (0, len(parts) - 1):
            rest = [f"({self._of(each)})" if "or" in joint or "and" in joint else self._of(each) for each in parts]
            del rest[out]
            yield kind, start, end, joint.join(rest) + tail

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where its text begins and ends."""
        assert node.end_lineno and node.end_col_offset  # noqa: PT018  for the types
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _of(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._text[start:end]


def mutants(files: Iterable[str] = JUDGES) -> list[Mutant]:
    """All of these files."""
    return [mutant for file in files for mutant in Operators(file, (ROOT / file).read_text()).mutants()]


def failure(mutant: Mutant, folder: Path) -> str:
    """The first test that finds it; "" if none does. folder: for a copy of the lab."""
    skipped = shutil.ignore_patterns(".*", "wheelhouse", "results", "runs", "build", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=skipped, dirs_exist_ok=True)
    (folder / mutant.file).write_text(mutant.applied())
    environment = os.environ | {"LAB_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", "LAB_SAMPLE": "mutants"}
    tests = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]
    tests += [f"tests/{name}.py" for name in JUDGES[mutant.file]]
    try:
        done = subprocess.run(tests, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return "no end"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return [*lines, f"exit code {done.returncode}"][0] if done.returncode else ""


def run(argv: Sequence[str]) -> int:
    """Print each mutant that no test finds, and the share of the others. Raises LabError for a bad value."""
    keys = {"sample": 10**6, "only": "", "seed": random.randrange(2**31), "processes": os.cpu_count()}
    given = Section.from_config(OmegaConf.from_dotlist(list(argv)))
    given.only(keys)
    section = Section(keys | given.values)
    seed, sample = section.whole("seed", 0), section.whole("sample", 1)
    every = [mutant for mutant in mutants() if section.text("only", blank=True) in str(mutant)]
    tried = random.Random(seed).sample(every, min(sample, len(every)))
    print(f"{len(tried)} of {len(every)} mutants, seed {seed}", flush=True)

    def judged(mutant: Mutant) -> tuple[Mutant, str]:
        with tempfile.TemporaryDirectory() as folder:
            return mutant, failure(mutant, Path(folder))

    survived = 0
    with ThreadPoolExecutor(section.whole("processes", 1)) as pool:
        for ended in as_completed(pool.submit(judged, mutant) for mutant in tried):
            mutant, found = ended.result()
            survived += not found
            print(f"{mutant}: {found or 'SURVIVED'}", flush=True)
    print(f"{len(tried) - survived} of {len(tried)} are found")
    return int(survived > (1 - GOAL) * len(tried))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return command(run, __doc__, argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Mutants of the Python that judges kernels: of the validator, a run's steps, shapes, formats and packing.

    python -m tests.strength.python [sample=N] [only=TEXT] [seed=N] [processes=N]

sample, only: some of them, those whose title has TEXT. The tests of a mutant's module judge it, in a copy of the lab.
The exit code is 1 if they find less than GOAL.
"""

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from common.errors import LabError
from tests.strength.command import command
from tests.strength.mutants.operators import Operator, each, named, replaced

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
# What has no effect: texts, comments, imports, decorators and the heads of functions.
_HIDDEN = re.compile(
    r'''""".*?""" | [rf]*"(?:[^"\\\n]|\\.)*" | \#[^\n]* | ^\ *(?:from|import|@)[^\n]* | ^\ *def\ .*?:(?=\n)''',
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_ALIKE = "==,!= <,<= >,>= and,or \\+,- \\*,/ &,\\| <<,>>"
_NAMES = "min,max minimum,maximum amin,amax any,all True,False"


def _both(pairs: str) -> dict[str, tuple[str, ...]]:
    """Each of a pair with the other one, as text."""
    split = [pair.split(",") for pair in pairs.split()]
    return {a: (b.replace("\\", ""),) for pair in split for a, b in (pair, pair[::-1])}


# ruff, as clang-format, puts spaces around binary operators; a change that is no Python is no mutant.
OPERATORS = (
    Operator("operator", each(_both(_ALIKE) | {"//": ("*",), "%": ("//",), "is": ("is not",), "not in": ("in",)})),
    Operator("name", named(_both(_NAMES))),
    Operator("constant", replaced(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.])", r"(2 * \1 or 1)")),
    Operator("negated", replaced(r"\b(if|while) (?!not |TYPE)", r"\1 not ")),
    Operator("not dropped", replaced(r"\bnot (?!in )", "")),
    Operator("left out", replaced(r"^( +)(?:(?:raise|yield|continue)\b|[\w.]+(?:\(| [-+*|&]= )).*$", r"\1pass")),
    Operator("first left out", replaced(r"(?<=[\s(\[{=])([(\[{])[^()\[\]{},:]+, ", r"\1")),
)


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

    def applied(self, text: str) -> str:
        """The changed text of its file."""
        return text[: self.at] + self.new + text[self.at + len(self.old) :]


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """The mutants of one file with this text."""
    visible = _HIDDEN.sub(lambda found: re.sub(r"[^\n]", "\0", found[0]), text)
    for operator in OPERATORS:
        for start, end, new in operator.edits(visible):
            mutant = Mutant(file, text.count("\n", 0, start) + 1, start, operator.name, text[start:end], new)
            if "\0" not in new and not (file == SHAPES and operator.name == "constant"):
                with suppress(SyntaxError):
                    ast.parse(mutant.applied(text))
                    yield mutant


def mutants(files: Iterable[str] = JUDGES) -> list[Mutant]:
    """All of these files."""
    return [mutant for file in files for mutant in mutants_of(file, (ROOT / file).read_text())]


def failure(mutant: Mutant, folder: Path) -> str:
    """The first test that finds it; "" if none does. folder: for a copy of the lab."""
    skipped = shutil.ignore_patterns(".*", "wheelhouse", "results", "runs", "build", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=skipped, dirs_exist_ok=True)
    (folder / mutant.file).write_text(mutant.applied((ROOT / mutant.file).read_text()))
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
    keys = {"sample": 10**6, "only": ":", "seed": random.randrange(2**31), "processes": os.cpu_count()}
    given = Section.from_config(OmegaConf.from_dotlist(list(argv)))
    given.only(keys)
    section = Section(keys | given.values)
    seed, sample = section.whole("seed", 0), section.whole("sample", 1)
    every = [mutant for mutant in mutants() if section.text("only") in str(mutant)]
    if not every:
        raise LabError(f"no mutant has {section.text('only')!r} in its title", "leave out only=")
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
    return int(len(tried) - survived < GOAL * len(tried))


main = partial(command, run, __doc__)

if __name__ == "__main__":
    raise SystemExit(main())

"""gcov's data of covered programs: how often each line, branch and class of a loop's turns was executed."""

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import LabError
from tests.strength.coverage.turns import CLASSES

TURNS = "turns.hpp"
_LOOP = re.compile(r"(loop_\w+)>::(\w+)\(\)$")


@dataclass
class Executed:
    """Executions of each line, over all instances of its template.

    lines     by line
    branches  by line, number of branches that an instance of the line has, and number of the branch from 0; an instance
              in which the compiler knows a condition has fewer branches
    turns     by name of the loop (turns.py) and class of its turns
    """

    lines: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    branches: dict[tuple[str, int, int, int], int] = field(default_factory=lambda: defaultdict(int))
    turns: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


def executed(folder: Path) -> Executed:
    """Coverage of all sessions of the program in `folder`. Raises LabError without gcov."""
    found = Executed()
    for file in _read(folder)["files"]:
        if Path(file["file"]).name == TURNS:
            for function in file["functions"]:
                loop = _LOOP.search(function["demangled_name"])
                if loop and loop[2] in CLASSES:
                    found.turns[loop[1], loop[2]] += function["execution_count"]
        else:
            for line in file["lines"]:
                place = (file["file"], line["line_number"])
                found.lines[place] += line["count"]
                for instance in _instances(line, file["functions"]):
                    for number, branch in enumerate(instance):
                        found.branches[*place, len(instance), number] += branch["count"]
    return found


def tool() -> str:
    """Path of gcov. Raises LabError where it is not installed."""
    path = shutil.which("gcov")
    if not path:
        raise LabError(
            "coverage needs gcov, which is not installed", "install it: it comes with g++ (Debian: apt install gcc)"
        )
    return path


def _instances(line: dict[str, Any], functions: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The branches of a line, instance by instance.

    For most templates gcov lists them so. In g++ 12 a lambda in a template ends where it begins, so gcov adds up the
    lines below that, and gives the branches of all its instances one after another.
    """
    branches = [branch for branch in line["branches"] if not branch["throw"]]
    number = line["line_number"]
    inside = [each for each in functions if each["start_line"] <= number]
    begin = max((each["start_line"] for each in inside), default=0)
    same = [each for each in inside if each["start_line"] == begin]
    alike = len(same) if not line.get("function_name") and same and len(branches) % len(same) == 0 else 1
    size = len(branches) // alike
    return (branches[at : at + size] for at in range(0, len(branches), size or 1))


def _read(folder: Path) -> dict[str, Any]:
    command = [tool(), "--json-format", "--branch-probabilities", "--stdout", "kernel.gcda"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    try:
        return json.loads(done.stdout)
    except ValueError:
        cause = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise LabError(f"gcov cannot read {folder}: {cause}", "g++ and gcov must be of one version") from None

"""The table of lines and branches that a validation executes, and those that it never does, with their reasons."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from common import ROOT
from experiments.tables.result_table import COUNTED, ResultTable
from tests.strength.coverage.covered import Executed, Place
from tests.strength.excuses import excuses

QUESTION = "what a validation executes of the CUDA text"
ALL = "all"
NOTE = (
    "Counted on the PTX device, each stack apart: lines that the compiler left instructions of, and places of "
    "branches, a line and the calls that it was inlined at, where some threads went one way and some the other."
)
FOLDERS = ("variants/", "common/kernel/")
LINES, BRANCHES = "lines", "branches"
_CONDITION = re.compile(r"\b(if|for|while|switch)\b|\?|&&|\|\|| ([<>]=?|[!=]=) ")


@dataclass(frozen=True, order=True)
class Item:
    """A line, or the branches at one place: a line and the calls that it was inlined at.

    places: all of a line; the one of branches.
    """

    file: str
    line: int
    kind: str
    places: tuple[Place, ...]

    @property
    def text(self) -> str:
        return text_at(self.file, self.line)


def items(found: Mapping[Place, Executed]) -> dict[Item, bool]:
    """True for a line of which some thread executed a row, or one of what it calls, and for branches taken both ways.

    Branches that are never reached are a matter of lines. The compiler's own are left out: those at rows without a
    call, which it made of several places, and those of a text without a condition, such as a division's short way.
    """
    lines: dict[tuple[str, int], set[Place]] = defaultdict(set)
    done: dict[Item, bool] = {}
    for place, one in found.items():
        for file, line in place:
            if line and file.startswith(FOLDERS):
                lines[file, line].add(place)
        reached = len(place) > 1 and place[0] in lines and one.straight + one.jumped
        if reached and _CONDITION.search(text_at(*place[0])):
            done[Item(*place[0], BRANCHES, (place,))] = bool(one.straight and one.jumped)
    for (file, line), places in lines.items():
        done[Item(file, line, LINES, tuple(sorted(places)))] = any(found[place].threads for place in places)
    return done


def reason_for(item: Item) -> str:
    """Why it may never be executed: each of its places is at a line with an excuse, or in a call there; "" if not."""
    whys = [next((why for line in place for why in reasons_at(*line)), "") for place in item.places]
    return whys[0] if all(whys) else ""


def reasons_at(file: str, line: int) -> list[str]:
    """Reasons of the comments `// not executed: ...` of a line."""
    return excuses(file, "not executed").get(line, []) if file.startswith(FOLDERS) else []


def listed(some: Iterable[Item]) -> Iterator[str]:
    """`variants/x.cu:12: the text: never executed`, and for branches the calls."""
    for item in sorted(some):
        what = "never executed"
        if item.kind == BRANCHES:
            calls = ", ".join(f"{file}:{line}" for file, line in item.places[0][1:3])
            what = f"a branch always goes one way, called at {calls}"
        yield f"{item.file}:{item.line}: {item.text}: {what}"


def text_at(file: str, line: int) -> str:
    """The source text of a line; "" outside a file."""
    lines = _lines(file)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


@cache
def _lines(file: str) -> tuple[str, ...]:
    path = ROOT / file
    return tuple(path.read_text().splitlines()) if path.is_file() else ()


def table(found: Sequence[tuple[str, Mapping[Place, Executed]]]) -> ResultTable:
    """A row for each file, and their sum. The notes list what was never executed, with its reason or without one.

    found: by stack, with its title.
    """
    done = [(item, reached) for _, places in found for item, reached in items(places).items()]
    files = sorted({item.file for item, _ in done})
    rows = [_row(file, [one for one in done if one[0].file == file]) for file in files]
    rows.append(_row(ALL, done))
    told: dict[str, list[str]] = defaultdict(list)  # stacks by note
    for stack, places in found:
        for item in (item for item, reached in items(places).items() if not reached):
            told[f"{next(listed([item]))}: {reason_for(item) or 'no reason given'}"].append(stack)
    notes = [f"{note} [{', '.join(dict.fromkeys(stacks))}]" for note, stacks in sorted(told.items())]
    return ResultTable("coverage", QUESTION, rows, COUNTED, [NOTE, *notes])


def _row(name: str, done: Sequence[tuple[Item, bool]]) -> dict[str, str | int | float]:
    row: dict[str, str | int | float] = {"file": name}
    for kind in (LINES, BRANCHES):
        reached = [each for item, each in done if item.kind == kind]
        row[kind] = len(reached)
        row[f"{kind} %"] = 1000 * sum(reached) // len(reached) / 10 if reached else 100.0  # 100 % is all
    never = [item for item, reached in done if not reached]
    row["never"] = len(never)
    row["no reason"] = sum(not reason_for(item) for item in never)
    return row

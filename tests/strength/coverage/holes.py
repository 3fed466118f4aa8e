"""Lines and branches that the kernels of a stack have and a validation never executes, and the reasons for them."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from common import ROOT
from common.errors import LabError
from tests.strength.coverage.covered import Executed, Place

FILE = Path(__file__).with_name("reasons.yaml")
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


@dataclass(frozen=True)
class Reason:
    """Why what is at a line, or in a function that it calls, may never be executed.

    text: begin of the line's; of several lines for the last of them.
    """

    file: str
    text: str
    why: str

    def explains(self, item: Item) -> bool:
        """True if the reason is about every place of the item."""
        return all(any(self._here(*line) for line in place) for place in item.places)

    def _here(self, file: str, line: int) -> bool:
        above = enumerate(reversed(self.text.split("\n")))
        return file == self.file and all(text_at(file, line - up).startswith(text) for up, text in above)

    @property
    def has_a_line(self) -> bool:
        return any(self._here(self.file, line) for line in range(1, len(_lines(self.file)) + 1))


def reason_for(item: Item, reasons: Iterable[Reason]) -> Reason | None:
    return next((reason for reason in reasons if reason.explains(item)), None)


def unexplained(missing: Iterable[Item], reasons: Collection[Reason]) -> list[Item]:
    """The items that no reason explains, in order."""
    return sorted(item for item in missing if not reason_for(item, reasons))


def read_reasons(file: Path = FILE) -> tuple[Reason, ...]:
    """All reasons. Raises LabError for one that is not text, and for one about no line of its file."""
    found = list[Reason]()
    for name, entries in yaml.safe_load(file.read_text()).items():
        for text, why in entries.items():
            found.append(Reason(name, text, why))
            if not found[-1].has_a_line:
                raise LabError(f"{file.name}: {name} has no line {text!r}", "give the begin of a line, or remove it")
            if not isinstance(why, str):
                raise LabError(f"{file.name}: {name}: {text!r} has no reason", "say why it is never executed")
    return tuple(found)


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

"""Reasons why something is never executed: reasons.yaml, by file and by the text of the line."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from common.errors import LabError
from tests.strength.coverage.items import Item

FILE = Path(__file__).with_name("reasons.yaml")


@dataclass(frozen=True)
class Reason:
    """Why the items `never` of every line with this text are not executed. () stands for all items of the line.

    of: the instances it is about, by a part of their name; "" for all of them.
    """

    file: str
    line: str
    never: tuple[str, ...]
    reason: str
    of: str = ""

    def explains(self, item: Item) -> bool:
        here = item.file == self.file and item.text == self.line and self.of in item.instance
        return here and (not self.never or item.what in self.never)


def read_reasons(file: Path = FILE) -> tuple[Reason, ...]:
    """All reasons of `file`. Raises LabError for an entry that is not complete."""
    found = []
    for name, entries in yaml.safe_load(file.read_text()).items():
        for entry in entries:
            if entry.keys() - {"of"} not in ({"lines", "never", "reason"}, {"lines", "reason"}):
                raise LabError(
                    f"{file.name}: {name}: {entry}", "give lines, reason, and never and of where it needs them"
                )
            about = tuple(entry.get("never", ())), entry["reason"], entry.get("of", "")
            found += [Reason(name, line, *about) for line in entry["lines"]]
    return tuple(found)


def unexplained(holes: Iterable[Item], reasons: Collection[Reason]) -> list[Item]:
    """The holes that no reason explains."""
    return [hole for hole in holes if not any(reason.explains(hole) for reason in reasons)]

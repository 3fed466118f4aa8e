"""Items of the CUDA text that a validation may execute, over all programs that it built."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common import ROOT
from common.stacks.catalog import read_catalog
from common.stacks.stack import knob_values, knob_words
from tests.strength.coverage.covered import Covered
from tests.strength.coverage.statements import statements
from tests.strength.coverage.turns import CLASSES

FOLDERS = ("variants/", "common/kernel/")
LINE, ABSENT = "line", "in no kernel"
KINDS = ("lines", "branches", "loop classes")
INSTANCES = 4  # most values of a whole-number knob that makes instances; one with more is a size


@dataclass(frozen=True, order=True)
class Item:
    """One thing that is executed or not.

    what      `line`; `branch 2 of 2`; a class of a loop's turns; `in no kernel` for a statement without any code
    instance  instances of a template: with one width of loads, or with one value of a knob of this file
    """

    file: str
    line: int
    what: str
    instance: str

    @property
    def kind(self) -> str:
        if self.what in (LINE, ABSENT):
            return KINDS[0]
        return KINDS[2] if self.what in CLASSES.values() else KINDS[1]

    @property
    def text(self) -> str:
        """The source text of its line."""
        return _lines(self.file)[self.line - 1].strip()


def items(programs: Iterable[Covered]) -> dict[Item, int]:
    """Executions of each item, over all programs. A statement without code in any program is ABSENT."""
    found: dict[Item, int] = {}
    for program in programs:
        for item, count in _of(program):
            found[item] = found.get(item, 0) + count
    present = {(item.file, item.line) for item in found}
    shared = {str(path.relative_to(ROOT)) for path in (ROOT / FOLDERS[1]).glob("*.cuh")}
    for file in sorted(shared | {item.file for item in found}):
        for span in statements("\n".join(_lines(file))):
            if not any((file, line) in present for line in span):
                found[Item(file, span.start, ABSENT, "")] = 0
    return found


def _of(program: Covered) -> Iterator[tuple[Item, int]]:
    done = program.executed
    instances = {file: _instances(file, program) for file, _ in done.lines if file.startswith(FOLDERS)}
    known = {name for name, _ in done.turns}
    loops = [(loop, name) for loop in program.loops if loop.name in known for name in loop.classes]
    counted = [
        *((file, line, LINE, count) for (file, line), count in done.lines.items()),
        *((file, line, f"branch {at + 1} of {of}", count) for (file, line, of, at), count in done.branches.items()),
        *((loop.file, loop.line, CLASSES[name], done.turns[loop.name, name]) for loop, name in loops),
    ]
    for file, line, what, count in counted:
        for instance in instances.get(file, ()):
            yield Item(file, line, what, instance), count


def _instances(file: str, program: Covered) -> list[str]:
    """`16-byte loads`, `stages=4`, `tile=1`: the instances of this program; a knob that is a size makes none."""
    catalog, name = read_catalog(), Path(file).stem
    found = [f"{program.load_bytes}-byte loads"]
    if file.startswith(FOLDERS[0]) and name in catalog.variants:
        given = knob_values(catalog, [name], program.knobs).get(name, {})
        for knob in catalog.variants[name].knobs:
            few = knob.kind == "int" and knob.maximum is not None and knob.maximum - (knob.minimum or 0) < INSTANCES
            if few or knob.kind == "choice":
                found += knob_words({knob.name: given[knob.name]})
    return found


@cache
def _lines(file: str) -> tuple[str, ...]:
    return tuple((ROOT / file).read_text().splitlines())


def holes(found: Mapping[Item, int]) -> list[Item]:
    """Items that were never executed, in the order of the files."""
    return sorted(item for item, count in found.items() if not count)

"""The table of coverage, by file, and what was never executed, with its reason."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from experiments.tables.result_table import COUNTED, ResultTable
from tests.strength.coverage.items import ABSENT, KINDS, Item, holes
from tests.strength.coverage.reasons import Reason, unexplained

QUESTION = "what a validation executes of the CUDA text"
ALL = "all"
NOTE = (
    "Counted by gcov on the host device, each instance of a template apart: by the width of loads, and by the knobs "
    "that shape the code of its file. The classes of a loop are executions with 0, 1, 2 and more turns, and, where "
    "threads share a loop, with a last turn that only some of them take."
)


def table(found: Mapping[Item, int], reasons: Sequence[Reason]) -> ResultTable:
    """A row for each file, and their sum. The notes list every hole, with its reason or without one."""
    missing = holes(found)
    left = unexplained(missing, reasons)
    files = sorted({item.file for item in found})
    rows = [_row(file, [i for i in found if i.file == file], found, left) for file in files]
    rows.append(_row(ALL, list(found), found, left))
    notes = [NOTE, *(f"never, and no reason given: {line}" for line in listed(left))]
    for reason in dict.fromkeys(reason.reason for reason in reasons):
        why = [each for each in reasons if each.reason == reason]
        some = [hole for hole in missing if any(each.explains(hole) for each in why)]
        notes += [f"never: {line}: {reason}" for line in listed(some)]
    return ResultTable("coverage", QUESTION, rows, COUNTED, notes)


def _row(
    name: str, items: Sequence[Item], found: Mapping[Item, int], left: Sequence[Item]
) -> dict[str, str | int | float]:
    row: dict[str, str | int | float] = {"file": name}
    for kind in KINDS:
        some = [item for item in items if item.kind == kind]
        done = sum(found[item] > 0 for item in some)
        row[kind] = len(some)
        row[f"{kind} %"] = 1000 * done // len(some) / 10 if some else 100.0  # rounded down: 100 % is all
    known = set(items)
    row["never"] = sum(not found[item] for item in items)
    row["no reason"] = sum(item in known for item in left)
    return row


def listed(some: Iterable[Item]) -> Iterator[str]:
    """`variants/x.cu:12: the text of the line: 0 turns, 2 turns [tile=1]`, a line for each line of a file."""
    for (file, line), group in groupby(some, key=lambda item: (item.file, item.line)):
        each = list(group)
        places: dict[str, list[str]] = {}
        for item in each:
            places.setdefault(item.what, []).append(item.instance)
        whats = []
        for what, instances in places.items():
            named = " or ".join(filter(None, instances))
            whats.append(f"{what} [{named}]" if named else what)
        yield f"{file}:{line}: {each[0].text}: {', '.join(whats)}"


def tracefile(found: Mapping[Item, int]) -> Iterator[str]:
    """The lines of an lcov tracefile, which `genhtml` shows. A loop's classes stand among the branches of its line."""
    for file, group in groupby(sorted(found), key=lambda item: item.file):
        yield f"SF:{file}"
        for line, at in groupby(group, key=lambda item: item.line):
            each = list(at)
            counts = [found[item] for item in each if item.kind == KINDS[0]]
            yield f"DA:{line},{sum(counts)}"
            for number, item in enumerate(item for item in each if item.kind != KINDS[0] and item.what != ABSENT):
                yield f"BRDA:{line},0,{number},{found[item]}"
        yield "end_of_record"

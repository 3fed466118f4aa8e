"""The table of coverage, by file, and what was never executed, with its reason."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from experiments.tables.result_table import COUNTED, ResultTable
from tests.strength.coverage.covered import Executed, Place
from tests.strength.coverage.holes import BRANCHES, LINES, Item, items, listed, reason_for

QUESTION = "what a validation executes of the CUDA text"
ALL = "all"
NOTE = (
    "Counted on the PTX device, each stack apart: lines that the compiler left instructions of, and places of "
    "branches, a line and the calls that it was inlined at, where some threads went one way and some the other."
)


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

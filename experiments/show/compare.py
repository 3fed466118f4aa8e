"""Comparison of two runs: counts, resources, predicted and measured times."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import LabError
from common.errors.suggest import unknown
from common.record.store import Store
from experiments.show.record import listed
from experiments.tables.find import Record, find, undamaged
from experiments.tables.result_table import COUNTED, MEASURED, ResultTable
from experiments.tables.row import Row, error, labels, row_of
from experiments.timing.statistics import VERDICT_CONFIDENCE, unpaired

SETTINGS = ("gpu", "device", "compiler", "threads", "blocks", "seed")  # shown where they differ
COUNTS = {
    "grid_barriers": "grid barriers a token",
    "activation_bytes": "activation bytes a token",
    "async_copy_bytes": "cp.async bytes a token",
    "prefetched_bytes": "prefetched bytes a token",
}
PAIRED = "{}: the rounds of both alternated in one process, that of {}."
APART = "{}: measured in two processes: different heat and clocks affect the change, but not its interval."
Line = dict[str, Any]


def pair(names: Sequence[str], results: Path) -> tuple[Record, Record]:
    """The records that `compare=A,B` stands for: two ids, or two names of stacks, with or without their knobs.

    Of two names, the newest runs of each on one device with one model. Raises LabError when there are none, or when
    the two have unlike models (their number of positions is part of it).
    """
    if len(names) != 2:
        raise LabError(f"compare={','.join(names)} names {len(names)}", "give two ids or two stacks: compare=A,B")
    runs = [row for row in reversed(Store(results).records()) if row.get("kind") == "run"]
    sides = [[row for row in runs if name in (row.get("variant"), listed(row)["what"])] for name in names]
    sides = [side or [_one(name, runs, results)] for name, side in zip(names, sides, strict=True)]
    for a in sides[0]:
        for b in sides[1]:
            if a["id"] != b["id"] and _place(a) == _place(b):
                return a, b
    a, b = sides[0][0], sides[1][0]
    if a["id"] == b["id"]:
        cause = f"{names[0]} and {names[1]} are one record, {a['id']}"
        raise LabError(cause, "give two: python -m experiments.show lists them")
    ids = all(row["id"].startswith(name) for name, row in zip(names, (a, b), strict=True))
    if ids and _place(a)[0] == _place(b)[0]:  # of two devices, since these two were meant
        return a, b
    raise LabError(
        f"{_said(names[0], a)} and {_said(names[1], b)} cannot be compared",
        "compare two runs of one model with one number of positions, on one device",
    )


def compared(a: Record, b: Record, predicted: Sequence[float | None] = (None, None), gpu: str = "") -> ResultTable:
    """A line for each figure of the two runs. change: of the second against the first, where it is a number.

    predicted: microseconds of each on `gpu`. The interval of a change is that of measured times, with the confidence
    that a verdict needs.
    """
    rows = [row_of(a), row_of(b)]
    names = labels(rows)
    lines = [
        _line("verdict", *(row.verdict for row in rows)),
        _line("max error / allowed", *(error(row) for row in rows)),
        *(_line(field, *(str(getattr(row, field)) for row in rows)) for field in SETTINGS),
    ]
    lines = lines[:2] + [line for line in lines[2:] if line["A"] != line["B"]]
    lines += [line for line in _counts(*rows) if line["A"] or line["B"]]
    lines += [_line(f"predicted us on {gpu}", *predicted)] if any(predicted) else []
    times, notes = _times(a, b)
    renamed = {"what": "what", "A": names[0], "B": names[1], "change": "change %"}
    renamed |= {"low": "low %", "high": "high %"} if times else {}
    table = [{head: line[name] for name, head in renamed.items()} for line in [*lines, *times]]
    question = f"{names[1]} against {names[0]}, {rows[0].model} on {rows[0].gpu or rows[0].device}"
    if times:
        notes += [f"low and high bound a change with {100 * VERDICT_CONFIDENCE:.0f} % confidence."]
    ids = f"Records: {a['id']} and {b['id']}."
    return ResultTable("compare", question, table, MEASURED if times else COUNTED, [ids, *notes])


def _one(name: str, runs: Sequence[Record], results: Path) -> Record:
    try:
        row = find(name, results)
    except LabError:
        raise unknown("stack or record", name, sorted({listed(row)["what"] for row in runs})) from None
    if row.get("kind") != "run":
        raise LabError(f"{row['id']} is a record of kind {row.get('kind')}", "compare two records of runs")
    return row


def _place(row: Record) -> tuple[Any, ...]:
    with undamaged(row):
        return row["model"], row["device"]["device"], row["device"].get("gpu")


def _said(name: str, row: Record) -> str:
    with undamaged(row):
        where = row["device"].get("gpu") or row["device"]["device"]
        return f"{name} ({row['model']['name']}, {row['model']['positions']} positions, {where})"


def _line(what: str, a: Any, b: Any) -> Line:
    numbers = all(isinstance(value, int | float) for value in (a, b)) and a
    change = 100 * (b / a - 1) if numbers else None  # of nothing to something there is none
    return {"what": what, "A": a, "B": b, "change": change, "low": None, "high": None}


def _counts(a: Row, b: Row) -> Iterator[Line]:
    for field, what in COUNTS.items():
        yield _line(what, getattr(a, field), getattr(b, field))
    for width in sorted({*a.load_bytes, *b.load_bytes}):
        yield _line(f"bytes by {width}-bit loads a token", *(one.load_bytes.get(width, 0) for one in (a, b)))
    for arch in sorted({*a.resources, *b.resources}, key=lambda arch: int(arch.removeprefix("sm_"))):
        for field, what in (("registers", "registers"), ("spill_bytes", "spilled bytes")):
            yield _line(f"{arch} {what}", *(getattr(one.resources.get(arch), field, None) for one in (a, b)))


def _times(a: Record, b: Record) -> tuple[list[Line], list[str]]:
    """Measured times at the positions that both have, and how each interval was made."""
    lines, notes = [], []
    both = _measured(a).keys() & _measured(b).keys()
    for place in sorted(both, key=lambda place: (isinstance(place, str), place)):
        timed = [_measured(row)[place] for row in (a, b)]
        what = f"us a token at {place}" if isinstance(place, int) else "us a token of a generation"
        line = _line(what, *(1e6 * one["seconds"]["median"] for one in timed))
        if together := _in_turn(a, b, place):
            change, by = together
            notes.append(PAIRED.format(what, by))
        else:
            change = unpaired(timed[0]["samples"], timed[1]["samples"])
            notes.append(APART.format(what))
        lines.append(line | dict(zip(("change", "low", "high"), (100 * part for part in change), strict=True)))
    return lines, notes


def _measured(row: Record) -> Mapping[int | str, Mapping[str, Any]]:
    """Measurements by position; IMPLAUSIBLE ones are none."""
    found = {timed["position"]: timed for timed in row["latencies"]}
    found |= {"generation": row["generation"]} if row["generation"] else {}
    return {place: timed for place, timed in found.items() if timed["verdict"] != "IMPLAUSIBLE"}


def _in_turn(a: Record, b: Record, place: int | str) -> tuple[tuple[float, float, float], str] | None:
    """(effect, low, high) of `b` against `a`, and whose process it is of; None where they never ran in turn.

    A run takes turns with its parent. That the other record is of that parent is known where knobs, block size,
    requested options and a clean commit are the same.
    """
    for child, parent in ((b, a), (a, b)):
        pair = _measured(child)[place].get("comparison")
        if pair is None or not _is_parent(parent, child):
            continue
        bounds = [pair["effect"], pair["low"], pair["high"]]
        if child is a:
            effect, high, low = (1 / (1 + bound) - 1 for bound in bounds)
            bounds = [effect, low, high]
        return (bounds[0], bounds[1], bounds[2]), child["id"]
    return None


def _is_parent(parent: Record, child: Record) -> bool:
    same = all(parent[name] == child[name] for name in ("threads", "model", "device", "asked"))
    commits = [(row["provenance"] or {}).get("git") or {} for row in (parent, child)]
    clean = all(git.get("commit") and git.get("dirty") is False for git in commits)
    knobs = all(child["knobs"].get(name) == constants for name, constants in parent["knobs"].items())
    return same and clean and knobs and commits[0] == commits[1] and parent["stack"] == child["parent"]

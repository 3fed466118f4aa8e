"""Comparison of two runs: counts, resources, measured times."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import LabError, unknown
from common.record.record import model_fields
from common.record.store import Store
from experiments.show.record import listed
from experiments.tables.find import Record, find
from experiments.tables.result_table import COUNTED, MEASURED, ResultTable
from experiments.tables.row import plausible, row_of
from experiments.tables.run_row import IMPLAUSIBLE, Row, error, labels
from experiments.timing.statistics import VERDICT_CONFIDENCE, unpaired

COUNTS = {
    "grid_barriers": "grid barriers a token",
    "activation_bytes": "activation bytes a token",
    "async_copy_bytes": "cp.async bytes a token",
    "prefetched_bytes": "prefetched bytes a token",
}
PAIRED = "{}: the rounds of both alternated in one process, recorded as {}."
APART = "{}: measured in two processes: different heat and clocks affect the change, but not its interval."
Line = tuple[Any, ...]  # name of a figure, and its values in the two runs
Interval = tuple[float, float, float]  # effect, low, high


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
    if ids and _place(a)[0] == _place(b)[0]:  # two devices may differ, since these two were meant
        return a, b
    raise LabError(
        f"{_described(names[0], a)} and {_described(names[1], b)} cannot be compared",
        "compare two runs of one model with one number of positions, on one device",
    )


def compared(a: Record, b: Record) -> ResultTable:
    """A line for each figure of the two runs. change: of the second against the first, where it is a number.

    The interval of a change comes from measured times, with the confidence that a verdict needs.
    """
    rows = [row_of(a), row_of(b)]
    names = labels(rows)
    table = [{"what": what, names[0]: x, names[1]: y, "change %": _change(x, y)} for what, x, y in _facts(*rows)]
    notes = [f"Records: {a['id']} and {b['id']}."]
    times = list(_times(a, b))
    for (what, x, y), (change, low, high), note in times:
        interval = {"change %": 100 * change, "low %": 100 * low, "high %": 100 * high}
        table.append({"what": what, names[0]: x, names[1]: y, **interval})
        notes.append(note)
    if times:
        notes.append(f"low and high bound a change with {100 * VERDICT_CONFIDENCE:.0f} % confidence.")
    question = f"{names[1]} against {names[0]}, {rows[0].model} on {rows[0].gpu or rows[0].device}"
    return ResultTable("compare", question, table, MEASURED if times else COUNTED, notes)


def _one(name: str, runs: Sequence[Record], results: Path) -> Record:
    try:
        row = find(name, results)
    except LabError:
        raise unknown("stack or record", name, sorted({listed(row)["what"] for row in runs})) from None
    if row.get("kind") != "run":
        raise LabError(f"{row['id']} is a record of kind {row.get('kind')}", "compare two records of runs")
    return row


def _place(row: Record) -> tuple[Any, ...]:
    return model_fields(row), row["device"]["device"], row["device"].get("gpu")


def _described(name: str, row: Record) -> str:
    where = row["device"].get("gpu") or row["device"]["device"]
    return f"{name} ({row['model']['name']}, {row['model']['positions']} positions, {where})"


def _change(a: Any, b: Any) -> float | None:
    """Percent from `a` to `b`; None without two numbers, and from nothing to something."""
    return 100 * (b / a - 1) if all(isinstance(value, int | float) for value in (a, b)) and a else None


def _facts(a: Row, b: Row) -> Iterator[Line]:
    """Verdicts, settings that differ, counts and resources that one of them has."""
    yield "verdict", a.verdict, b.verdict
    yield "max error / allowed", error(a), error(b)
    for setting in ("gpu", "device", "compiler", "threads", "blocks", "seed"):
        if getattr(a, setting) != getattr(b, setting):
            yield setting, str(getattr(a, setting)), str(getattr(b, setting))
    counts: list[Line] = [(what, getattr(a, field), getattr(b, field)) for field, what in COUNTS.items()]
    for width in sorted({*a.load_bytes, *b.load_bytes}):
        counts.append((f"bytes by {width}-bit loads a token", a.load_bytes.get(width, 0), b.load_bytes.get(width, 0)))
    for arch in sorted({*a.resources, *b.resources}, key=lambda arch: int(arch.removeprefix("sm_"))):
        for field, what in (("registers", "registers"), ("spill_bytes", "spilled bytes")):
            both = (getattr(row.resources.get(arch), field, None) for row in (a, b))
            counts.append((f"{arch} {what}", *both))
    yield from (line for line in counts if any(line[1:]))


def _times(a: Record, b: Record) -> Iterator[tuple[Line, Interval, str]]:
    """Measured times at the positions that both have, the change with its interval, and how that was made."""
    both = _measured(a).keys() & _measured(b).keys()
    for place in sorted(both, key=lambda place: (isinstance(place, str), place)):
        first, second = _measured(a)[place], _measured(b)[place]
        what = f"us a token at {place}" if isinstance(place, int) else "us a token of a generation"
        line = (what, *(1e6 * timed["seconds"]["median"] for timed in (first, second)))
        if paired := _paired(a, b, place):
            yield line, paired[0], PAIRED.format(what, paired[1])
        else:
            yield line, unpaired(first["samples"], second["samples"]), APART.format(what)


def _measured(row: Record) -> Mapping[int | str, Mapping[str, Any]]:
    """Measurements by position, without IMPLAUSIBLE ones."""
    times: dict[int | str, Mapping[str, Any]] = {timed["position"]: timed for timed in plausible(row)}
    whole = row["generation"]
    return times | ({"generation": whole} if whole and whole["verdict"] != IMPLAUSIBLE else {})


def _paired(a: Record, b: Record, place: int | str) -> tuple[Interval, str] | None:
    """Change from `a` to `b`, and the record of the process in which they took turns; None without one.

    A run takes turns with its parent; the other record is of that parent if knobs, block size, requested options and
    a clean commit are the same.
    """
    for child, parent in ((b, a), (a, b)):
        comparison = _measured(child)[place].get("comparison")
        if comparison is None or not _is_parent(parent, child):
            continue
        change = (comparison["effect"], comparison["low"], comparison["high"])
        if child is a:
            effect, high, low = (1 / (1 + bound) - 1 for bound in change)
            change = (effect, low, high)
        return change, child["id"]
    return None


def _is_parent(parent: Record, child: Record) -> bool:
    same = all(parent[name] == child[name] for name in ("threads", "model", "device", "asked"))
    commits = [(row["provenance"] or {}).get("git") or {} for row in (parent, child)]
    clean = all(git.get("commit") and git.get("dirty") is False for git in commits)
    knobs = all(child["knobs"].get(name) == constants for name, constants in parent["knobs"].items())
    return same and clean and knobs and commits[0] == commits[1] and parent["stack"] == child["parent"]

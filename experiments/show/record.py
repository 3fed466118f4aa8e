"""A record by its id, and as text: fields, verdict, figures and report."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import ROOT
from common.display.table import aligned, cell
from common.errors import LabError
from common.record.provenance import EVIDENCE
from common.record.store import STORE_FIELDS, Store
from common.stacks.stack import title
from experiments.tables.result_table import recorded_result, show_result
from experiments.tables.row import error, label, microseconds, totals

Record = Mapping[str, Any]
LAST = "last"
NAMED = 5  # ids that an error names
# Fields that are shown in another form than the others.
TABLE = ("columns", "table", "notes", "question", "basis", "needs_gpu", "keys")
HIDDEN = (*STORE_FIELDS, *TABLE, "kind", "report", "stages", "generation")


def listed(row: Record) -> dict[str, str]:
    """A record in a list: id, time (UTC), kind, status, and subject."""
    kind, status = str(row.get("kind")), str(row.get("status") or row.get("state") or row.get("basis") or "-")
    return {"id": row["id"], "time": _time(row), "kind": kind, "status": status, "what": _what(row)}


def show_record(row: Record, command: str) -> None:
    """Print a whole record. command: to reproduce it."""
    print(f"{_what(row)}  ({row.get('kind')} {row['id']}, {_time(row)} UTC)")
    if "columns" in row:
        show_result(recorded_result(row))
    fields = {**row} | (_of_run(row) if row.get("kind") == "run" else {})
    fields = {name: value for name, value in fields.items() if name not in HIDDEN and value not in (None, "", [], {})}
    _print("", ((name, value) for name, value in fields.items() if not isinstance(value, Mapping)))
    for name, value in fields.items():
        if isinstance(value, Mapping):
            _print(name, value.items())
    if stages := row.get("stages"):  # a timeline has them
        print("\nstages", aligned([[*stages[0]], *([*map(cell, each.values())] for each in stages)], "  "), sep="\n")
    if row.get("report"):
        print("\nreport", *row["report"].splitlines(), sep="\n  ")
    print(f"\nReproduce: {command}")


def _what(row: Record) -> str:
    if "variant" in row:
        return label(row)
    asked = row.get("asked")
    if isinstance(asked, Mapping) and "row" in asked:  # a row of an experiment's table
        return f"{asked.get('task')}: {asked['row']}"
    return str(row.get("question") or (title(row["stack"]) if "stack" in row else row.get("name", "-")))


def _time(row: Record) -> str:
    return row["time"][: len("2026-01-31T12:00:00")].replace("T", " ")


def _print(head: str, fields: Iterable[tuple[str, Any]]) -> None:
    lines = [(name, _text(value)) for name, value in fields]
    print(*([f"\n{head}"] if head else []), *([aligned(lines, "  ")] if lines else []), sep="\n")


def _of_run(row: Record) -> dict[str, Any]:
    """Fields of a run in a form that fits a screen: counts of all stages together, times without their samples."""
    verdict = row["verdict"]
    found: dict[str, Any] = {"stack": title(row["stack"]), "parent": title(row["parent"])}
    if verdict:
        worst = verdict["worst"]
        layer = "" if worst["layer"] is None else f" layer {worst['layer']}"
        found["verdict"] = {
            "validated": f"{verdict['steps']} steps, inputs of seed {verdict['seed']}",
            "max error": f"{error(row)} allowed, at {worst['stage']}{layer}",
            "not exercised": "; ".join(verdict.get("not_exercised", ())) or "-",
        }
    found["counts"] = {name: cell(value) for name, value in sorted(totals(row["counts"] or {}).items())}
    found["resources"] = {
        arch: {**used, "histogram": f"{sum(used.get('histogram', {}).values())} instructions"}
        for arch, used in row["resources"].items()
    }
    times = {f"position {timed['position']}": _measured(timed) for timed in row["latencies"]}
    found["latencies"] = times | ({"generation": _measured(row["generation"])} if row["generation"] else {})
    return found


def _measured(timed: Record) -> str:
    low, high = (1e6 * timed["seconds"][end] for end in ("low", "high"))
    figures = f"{microseconds(timed):.1f} us a step, 95 % interval {low:.1f} to {high:.1f}"
    rate = f"{timed['bandwidth'] / 1e9:.0f} GB/s, {100 * timed['of_ceiling']:.1f} % of the read ceiling"
    against = f"against its parent: {timed['verdict'] or '-'}"
    return "; ".join((figures, rate, against, *timed.get("marks", ())))


def _text(value: Any) -> str:
    """A field of a record on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "-"
    return "-" if value is None else str(value)


def newest(results: Path) -> Sequence[Record]:
    """All records of the store `results`, the newest first. Raises LabError when there is none."""
    if rows := Store(results).records():
        return rows[::-1]
    raise LabError(f"{results} has no records", "run something, or give another file: results=FILE")


def find(name: str, results: Path) -> Record:
    """The record with the id `name`, or with this unique prefix of one; `last` is the newest one of `results`.

    The committed evidence is searched after `results`. Raises LabError when there is none, or more than one.
    """
    if name == LAST:
        return newest(results)[0]
    for path in (results, *sorted((ROOT / EVIDENCE).glob("*.jsonl"))):
        matches = {row["id"]: row for row in Store(path).records() if row["id"].startswith(name)}
        if name in matches:
            return matches[name]
        if len(matches) > 1:
            some = ", ".join(list(matches)[-NAMED:])
            raise LabError(f"{len(matches)} records of {path} begin with {name}", f"give more of the id: {some}")
        if matches:
            return next(iter(matches.values()))
    raise LabError(
        f"{results} has no record with the id {name}", "python -m experiments.show lists them; or give results=FILE"
    )

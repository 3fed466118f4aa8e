"""A record as text: what ran, verdict, report, all figures, and the command that reproduces it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.display.table import aligned, cell
from common.errors import LabError
from common.record.store import STORE_FIELDS
from common.stacks.stack import knob_words, title
from experiments.tables.find import Record, undamaged
from experiments.tables.result_table import recorded_result, show_result
from experiments.tables.row import Timed, error, label, row_of, totals

SETTING = ("model", "weights", "device", "seed", "threads", "blocks", "options")
TIME = 19  # characters of a time up to the second


def listed(row: Record) -> dict[str, str]:
    """A record in a list: id, time (UTC), kind, status, and what it is about; of a damaged one the id alone."""
    try:
        with undamaged(row):
            return _listed(row)
    except LabError:
        return {"id": row["id"], "time": "-", "kind": "-", "status": "damaged", "what": "-"}


def _listed(row: Record) -> dict[str, str]:
    return {
        "id": row["id"],
        "time": row["time"][:TIME].replace("T", " "),
        "kind": str(row.get("kind")),
        "status": str(row.get("status") or row.get("basis") or "-"),
        "what": _what(row),
    }


def show_list(rows: Sequence[Record]) -> None:
    """Print a line for each record, as `listed` gives it."""
    print(aligned([("id", "time (UTC)", "kind", "status", "what"), *(list(listed(row).values()) for row in rows)]))


def show_record(row: Record, source: str, command: str) -> None:
    """Print a whole record. source: whether today's source is the same; command: what reproduces it."""
    print(f"{_what(row)}  ({row.get('kind')} {row['id']}, {row['time'][:TIME].replace('T', ' ')} UTC)")
    if "columns" in row:
        _fields(_setting(row))
        show_result(recorded_result(row))
    elif row.get("kind") == "run":
        _fields([*_setting(row), *_verdict(row), ("source", f"{row['source_sha']}: {source}")])
        if row["report"]:
            print("\nReport\n" + "\n".join(f"  {line}" for line in row["report"].splitlines()))
        for head, lines in _figures(row):
            print(f"\n{head}")
            _fields(lines)
    else:
        _fields(
            [(name, _text(value)) for name, value in row.items() if name not in (*STORE_FIELDS, "kind", "provenance")]
        )
    print("\nProvenance")
    _fields([(name, _text(value)) for name, value in (row.get("provenance") or {}).items()])
    print(f"\nReproduce: {command}")


def _what(row: Record) -> str:
    if "variant" in row:
        return label(row)
    return str(row.get("question") or title(row.get("stack") or ()))


def _fields(lines: Sequence[tuple[str, str]]) -> None:
    if lines:
        print(aligned(lines, indent="  "))


def _setting(row: Record) -> list[tuple[str, str]]:
    """Stack, model and device of a run, as far as the record says it."""
    found: list[tuple[str, Any]] = []
    if row.get("kind") == "run":
        found += [("stack", title(row["stack"])), ("parent", title(row["parent"]))]
        found += [("knobs", ", ".join(f"{one}: {_words(knobs)}" for one, knobs in row_of(row).knobs.items()) or "none")]
    found += [(name, row.get(name)) for name in SETTING]
    found += [("requested", row.get("asked"))]
    return [(name, _text(value)) for name, value in found if value is not None]


def _verdict(row: Record) -> Iterator[tuple[str, str]]:
    yield "status", row["status"]
    if row["reason"]:
        yield "reason", row["reason"]
    if row["verdict"]:
        worst = row["verdict"]["worst"]
        layer = "" if worst["layer"] is None else f" layer {worst['layer']}"
        yield "validated", f"{row['verdict']['steps']} steps, inputs of seed {row['verdict']['seed']}"
        yield "not exercised", "; ".join(row["verdict"].get("not_exercised", ())) or "-"
        yield "max error", f"{error(row_of(row))} allowed, at {worst['stage']}{layer}"


def _figures(row: Record) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    shown = row_of(row)
    if shown.times:
        yield "Time", [_time(timed, "generation" if timed is shown.generation else "") for timed in shown.times]
    if row["counts"]:
        yield (
            "Counts of one step, all stages together (a *bit field is in bytes)",
            [(name, cell(value)) for name, value in sorted(totals(row["counts"]).items())],
        )
    if row["resources"]:
        yield "Resources", [(arch, _resources(found)) for arch, found in row["resources"].items()]


def _resources(found: Mapping[str, Any]) -> str:
    instructions = sum(found.get("histogram", {}).values())
    numbers = {name: value for name, value in found.items() if isinstance(value, int)}
    return ", ".join(f"{name} {value:,}" for name, value in (numbers | {"instructions": instructions}).items())


def _time(timed: Timed, name: str) -> tuple[str, str]:
    low, high = timed.interval
    figures = f"{timed.microseconds:.1f} us a token, 95 % interval {low:.1f} to {high:.1f}; {timed.gb_per_s:.0f} GB/s, "
    against = f"{timed.percent_of_ceiling:.1f} % of the read ceiling; against its parent: {timed.verdict}"
    return name or f"position {timed.position}", "; ".join((figures + against, *timed.marks))


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(knob_words(values))


def _text(value: Any) -> str:
    """A field of a record on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "-"
    return "-" if value is None else str(value)

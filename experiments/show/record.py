"""A record as text: what ran, verdict, report, all figures, and the command that reproduces it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.display.table import aligned, cell
from common.record.store import STORE_FIELDS
from common.stacks.stack import knob_words, title
from experiments.tables.find import Record
from experiments.tables.result_table import recorded_result, show_result
from experiments.tables.row import label, row_of, totals
from experiments.tables.run_row import Row, Timed, error

RUN_SETTINGS = ("model", "weights", "device", "seed", "threads", "blocks", "options")
Lines = list[tuple[str, str]]


def listed(row: Record) -> dict[str, str]:
    """A record in a list: id, time (UTC), kind, status, and subject."""
    kind, status = str(row.get("kind")), str(row.get("status") or row.get("basis") or "-")
    return {"id": row["id"], "time": _time(row), "kind": kind, "status": status, "what": _what(row)}


def show_list(rows: Sequence[Record]) -> None:
    """Print a line for each record, as `listed` gives it."""
    print(aligned([("id", "time (UTC)", "kind", "status", "what"), *(list(listed(row).values()) for row in rows)]))


def show_record(row: Record, source: str, command: str) -> None:
    """Print a whole record. source: whether today's source is the same; command: to reproduce it."""
    print(f"{_what(row)}  ({row.get('kind')} {row['id']}, {_time(row)} UTC)")
    if "columns" in row:
        _print("", _settings(row))
        show_result(recorded_result(row))
    elif row.get("kind") == "run":
        shown = row_of(row)
        stack = [("stack", title(row["stack"])), ("parent", title(row["parent"])), ("knobs", _knobs(shown))]
        source_line = ("source", f"{row['source_sha']}: {source}")
        _print("", [*stack, *_settings(row), *_verdict(row, shown), source_line])
        if row["report"]:
            print("\nReport\n" + "\n".join(f"  {line}" for line in row["report"].splitlines()))
        for head, lines in _figures(row, shown):
            _print(head, lines)
    else:
        fields = {name: row[name] for name in row if name not in (*STORE_FIELDS, "kind", "provenance")}
        stages = fields.pop("stages", [])  # a timeline has them
        _print("", _texts(fields))
        if stages:
            rows = [[*stages[0]], *([*map(cell, stage.values())] for stage in stages)]
            print("\nStages", aligned(rows, indent="  "), sep="\n")
    _print("Provenance", _texts(row.get("provenance") or {}))
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


def _print(head: str, lines: Lines) -> None:
    print(*([f"\n{head}"] if head else []), *([aligned(lines, indent="  ")] if lines else []), sep="\n")


def _settings(row: Record) -> Lines:
    """Model, device and options of a run, as far as the record has them."""
    settings = {name: row.get(name) for name in RUN_SETTINGS} | {"requested": row.get("asked")}
    return _texts({name: value for name, value in settings.items() if value is not None})


def _knobs(shown: Row) -> str:
    return ", ".join(f"{variant}: {' '.join(knob_words(knobs))}" for variant, knobs in shown.knobs.items()) or "none"


def _verdict(row: Record, shown: Row) -> Iterator[tuple[str, str]]:
    yield "status", row["status"]
    if row["reason"]:
        yield "reason", row["reason"]
    if verdict := row["verdict"]:
        layer = "" if verdict["worst"]["layer"] is None else f" layer {verdict['worst']['layer']}"
        yield "validated", f"{verdict['steps']} steps, inputs of seed {verdict['seed']}"
        yield "not exercised", "; ".join(shown.not_exercised) or "-"
        yield "max error", f"{error(shown)} allowed, at {shown.worst_stage}{layer}"


def _figures(row: Record, shown: Row) -> Iterator[tuple[str, Lines]]:
    if shown.times:
        names = [*(f"position {timed.position}" for timed in shown.latencies), "generation"]
        yield "Time", [(name, _measured(timed)) for name, timed in zip(names, shown.times, strict=False)]
    if row["counts"]:
        head = "Counts of one step, all stages together (a *bit field is in bytes)"
        yield head, [(name, cell(value)) for name, value in sorted(totals(row["counts"]).items())]
    if row.get("seconds"):
        yield "Seconds of the run", [(name, f"{seconds:.2f}") for name, seconds in row["seconds"].items()]
    if row["resources"]:
        yield "Resources", [(arch, _resources(used)) for arch, used in row["resources"].items()]


def _resources(used: Mapping[str, Any]) -> str:
    numbers = {name: value for name, value in used.items() if isinstance(value, int)}
    numbers["instructions"] = sum(used.get("histogram", {}).values())
    return ", ".join(f"{name} {value:,}" for name, value in numbers.items())


def _measured(timed: Timed) -> str:
    low, high = timed.interval
    figures = f"{timed.microseconds:.1f} us a token, 95 % interval {low:.1f} to {high:.1f}; {timed.gb_per_s:.0f} GB/s, "
    against = f"{timed.percent_of_ceiling:.1f} % of the read ceiling; against its parent: {timed.verdict}"
    return "; ".join((figures + against, *timed.marks))


def _texts(fields: Mapping[str, Any]) -> Lines:
    return [(name, _text(value)) for name, value in fields.items()]


def _text(value: Any) -> str:
    """A field of a record on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "-"
    return "-" if value is None else str(value)

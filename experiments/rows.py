"""A record of a run as the row that tables show of it."""

from collections.abc import Mapping
from typing import Any

from common.counters import WIDTHS
from experiments.table import Fact, Row, Timed

Record = Mapping[str, Any]


def row_of(record: Record, name: str | None = None) -> Row:
    """The row of a record of kind `run`; `name` is its id in the store, for one that does not carry it."""
    worst = (record["verdict"] or {}).get("worst", {})
    counts = _totals(record["counts"]) if record["counts"] else None
    loads = (
        {8 * w: sum(counts.get(f"{data}_{8 * w}bit", 0) for data in ("weights", "kv")) for w in WIDTHS}
        if counts
        else {}
    )
    return Row(
        variant=record["variant"],
        stack=tuple(record["stack"]),
        verdict=record["status"],
        reason=record["reason"],
        error=worst.get("error"),
        stage=worst.get("stage"),
        barriers=counts and counts.get("grid_barriers", 0),
        loads={width: size for width, size in loads.items() if size},
        copied=counts and counts.get("copied_async", 0),
        prefetched=counts and counts.get("prefetched", 0),
        activations=counts and sum(counts.get(f"activations_{8 * width}bit", 0) for width in WIDTHS),
        facts={arch: Fact(found["registers"], found["spill_bytes"]) for arch, found in record["resources"].items()},
        timed=tuple(map(_timed, record["latencies"])),
        generation=record["generation"] and _timed(record["generation"]),
        record=name or record["id"],
    )


def _totals(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Every count, summed over the stages."""
    totals: dict[str, int] = {}
    for fields in counts.values():
        for field, value in fields.items():
            totals[field] = totals.get(field, 0) + value
    return totals


def _timed(found: Record) -> Timed:
    seconds = found["seconds"]
    return Timed(
        position=found["position"],
        latency=1e6 * seconds["median"],
        interval=(1e6 * seconds["low"], 1e6 * seconds["high"]),
        gbps=found["bandwidth"] / 1e9,
        ceiling=100 * found["of_ceiling"],
        verdict=found["verdict"] or "-",
        marks=tuple(found.get("marks", ())),
    )

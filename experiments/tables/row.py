"""Figures of a record of kind `run`: its row, its label, its counts and times."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from common.devices.counters import WIDTHS
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, knob_values, knob_words
from experiments.tables.run_row import IMPLAUSIBLE, ArchResources, Row, TimedRow

Record = Mapping[str, Any]


def row_of(record: Record) -> Row:
    """The row of a record of kind `run`, or of the findings of a stack that is not recorded yet."""
    worst = (record["verdict"] or {}).get("worst", {})
    counts = totals(record["counts"]) if record["counts"] else None

    def total(*names: str) -> int | None:
        return None if counts is None else sum(counts.get(name, 0) for name in names)

    loads = {8 * width: total(f"weights_{8 * width}bit", f"kv_{8 * width}bit") for width in WIDTHS}
    device = record.get("device") or {}
    return Row(
        variant=record["variant"],
        stack=tuple(record["stack"]),
        verdict=record["status"],
        reason=record["reason"],
        max_error=worst.get("error"),
        worst_stage=worst.get("stage"),
        tolerance=_tolerance(worst),
        grid_barriers=total("grid_barriers"),
        load_bytes={width: size for width, size in loads.items() if size},
        async_copy_bytes=total("copied_async"),
        prefetched_bytes=total("prefetched"),
        activation_bytes=total(*(f"activations_{8 * width}bit" for width in WIDTHS)),
        resources={
            arch: ArchResources(used["registers"], used["spill_bytes"]) for arch, used in record["resources"].items()
        },
        latencies=tuple(map(_timed, record["latencies"])),
        generation=record["generation"] and _timed(record["generation"]),
        record=record.get("id"),
        label=label(record),
        parent=tuple(record["parent"]),
        knobs=knob_values(read_catalog(), record["stack"], record["knobs"]),
        model=(record.get("model") or {}).get("name"),
        weights=(record.get("weights") or {}).get("source"),
        device=device.get("device"),
        gpu=device.get("gpu"),
        compiler=device.get("compiler"),
        not_exercised=tuple((record["verdict"] or {}).get("not_exercised", ())),
        **{name: record.get(name) for name in ("seed", "threads", "blocks", "source_sha")},
    )


def plausible(record: Record) -> list[Mapping[str, Any]]:
    """The latencies of a run that may stand in a table: none is faster than the memory's bandwidth allows."""
    return [timed for timed in record["latencies"] if timed["verdict"] != IMPLAUSIBLE]


def label(record: Record, own: bool = True) -> str:
    """Name of a record in a table: `warp_split ratio=2:6`, with the knobs that are not at their defaults.

    own: with all knobs of the variant that gives the name.
    """
    catalog, name = read_catalog(), record["variant"]
    preset = catalog.stacks[name].knobs if name in catalog.stacks else {}
    words = [name]
    for variant, values in knob_values(catalog, record.get("stack") or (), record.get("knobs") or {}).items():
        knobs = catalog.variants[variant].knobs if variant in catalog.variants else ()
        usual = {knob.name: preset.get(knob.name, knob.default) for knob in knobs}
        shown = {knob: value for knob, value in values.items() if (own and variant == name) or value != usual.get(knob)}
        words += [word for word in knob_words(shown) if word not in words]
    return " ".join(words)


def label_of(stack: Stack, own: bool = True) -> str:
    """`label` of a stack that has no record yet."""
    return label({"variant": stack.name, "stack": stack.variants, "knobs": stack.knobs}, own)


def _tolerance(worst: Record) -> float | None:
    """Tolerance from the recorded error and its share of it; None where the share is 0 or infinite."""
    share = worst.get("ratio")
    return worst["error"] / share if isinstance(share, float) and share > 0 else None


def totals(counts: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    """Every count, summed over the stages."""
    sums = Counter[str]()
    for stage in counts.values():
        sums.update(stage)
    return sums


def _timed(latency: Record) -> TimedRow:
    seconds = latency["seconds"]
    return TimedRow(
        position=latency["position"],
        microseconds=1e6 * seconds["median"],
        interval=(1e6 * seconds["low"], 1e6 * seconds["high"]),
        gb_per_s=latency["bandwidth"] / 1e9,
        percent_of_ceiling=100 * latency["of_ceiling"],
        verdict=latency["verdict"] or "-",
        marks=tuple(latency.get("marks", ())),
    )

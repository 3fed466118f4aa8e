"""One row of a run's table: what is shown of one stack, read from its record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.devices.counters import WIDTHS
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, knob_values, knob_words

Record = Mapping[str, Any]
SETTINGS = ("threads", "blocks", "model", "device", "gpu", "seed", "weights", "record")  # what tells equal labels apart
IMPLAUSIBLE = "IMPLAUSIBLE"
STOPPED = "STOPPED"  # verdict of a measurement that ended early, as that of a stack too slow to win a search
NOT_MODELLED = "not modelled"  # of an effect: no term of the prediction differs between a stack and its parent


@dataclass(frozen=True)
class Forecast:
    """A predicted decode step.

    microseconds  of one token; None: its counts are not known
    effect        its change against the parent, -0.1 is 10 % less; None where there is none
    interval, effect_interval   from the least to the most that the ranges of the GPU's constants allow
    note          why one of them is None; empty for a stack that is its own parent
    gpu, model, position   what it is predicted for, by the names of conf/gpu and conf/model
    """

    parent: tuple[str, ...]
    microseconds: float | None
    interval: tuple[float, float] | None
    effect: float | None
    effect_interval: tuple[float, float] | None
    note: str
    gpu: str
    model: str
    position: int


@dataclass(frozen=True)
class ArchResources:
    """Result of ptxas for one arch: registers of a thread, bytes spilled."""

    registers: int
    spill_bytes: int


@dataclass(frozen=True)
class Timed:
    """One position on a GPU.

    microseconds       a token (median)
    interval           its 95 % bounds
    gb_per_s           10^9 bytes/s of the bytes that a token must read
    percent_of_ceiling of the read-only bandwidth measured in the same run
    verdict            against the parent
    marks              what disturbed the measurement, such as throttling
    """

    position: int
    microseconds: float
    interval: tuple[float, float]
    gb_per_s: float
    percent_of_ceiling: float | None
    verdict: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """Row of one stack in tables; its fields are those of a JSON row.

    variant           what was requested: a variant, a named stack, or the variants joined by "+"
    stack             its variants, innermost first; parent: those of the stack that it is compared with
    verdict           of validation: PASSED, MISMATCH, HUNG, ...; `reason` says in one line why it is not PASSED
    max_error         of the tap that came nearest to its tolerance, absolute; tolerance: what that tap is allowed;
                      worst_stage: where it is
    grid_barriers     a token
    load_bytes        of weights and KV cache a token, by the width of the load in bits
    activation_bytes  of activations loaded a token, by all blocks together
    resources         by arch, as `sm_90`
    latencies         by position, empty without a GPU; generation: of many tokens from position 0 on
    record            id in the store; results: the file that the store is
    async_copy_bytes  of weights a token by cp.async; prefetched_bytes: requested ahead of their load
    forecast          of its time, where there is no GPU to measure it
    label             `variant`, the knobs of that variant, and what differs from the defaults of the stack's others
    knobs             {variant: {knob: value}}, all of them
    model, weights    name of the shape, and what the weights were made or read from
    device, gpu       `host` or `cuda`, and the GPU's name; compiler: of the kernel
    seed, threads, blocks   of weights and inputs; of a block; of the grid, None where it was never chosen
    source_sha        sha256 of the flattened CUDA text
    not_exercised     what the validation did not do, so that its verdict says nothing about it
    """

    variant: str
    stack: tuple[str, ...]
    verdict: str
    reason: str = ""
    max_error: float | None = None
    worst_stage: str | None = None
    grid_barriers: int | None = None
    load_bytes: Mapping[int, int] = field(default_factory=dict)
    activation_bytes: int | None = None
    resources: Mapping[str, ArchResources] = field(default_factory=dict)
    latencies: tuple[Timed, ...] = ()
    generation: Timed | None = None
    record: str | None = None
    async_copy_bytes: int | None = None
    prefetched_bytes: int | None = None
    forecast: Forecast | None = None
    label: str = ""
    parent: tuple[str, ...] = ()
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tolerance: float | None = None
    model: str | None = None
    weights: str | None = None
    device: str | None = None
    gpu: str | None = None
    compiler: str | None = None
    seed: int | None = None
    threads: int | None = None
    blocks: int | None = None
    source_sha: str | None = None
    results: str | None = None
    not_exercised: tuple[str, ...] = ()

    @property
    def times(self) -> tuple[Timed, ...]:
        return (*self.latencies, self.generation) if self.generation else self.latencies

    @property
    def sound(self) -> bool:
        """True if the row may stand in a table."""
        return self.verdict == "PASSED" and all(timed.verdict != IMPLAUSIBLE for timed in self.times)


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
            arch: ArchResources(found["registers"], found["spill_bytes"]) for arch, found in record["resources"].items()
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


def label(record: Record, own: bool = True) -> str:
    """`warp_split ratio=2:6`: what a record is called in a table.

    Knobs of the variant that gives the name always stand there, but without `own`; those of others where their value is
    not the default.
    """
    catalog, name = read_catalog(), record["variant"]
    given = catalog.stacks[name].knobs if name in catalog.stacks else {}
    words = [name]
    for one, values in knob_values(catalog, record.get("stack") or (), record.get("knobs") or {}).items():
        knobs = catalog.variants[one].knobs if one in catalog.variants else ()
        usual = {knob.name: given.get(knob.name, knob.default) for knob in knobs}
        shown = {knob: value for knob, value in values.items() if (own and one == name) or value != usual.get(knob)}
        words += [word for word in knob_words(shown) if word not in words]
    return " ".join(words)


def changed(stack: Stack) -> str:
    """The name of a stack, and those of its knobs that are not at their defaults: for the heads of columns."""
    return label({"stack": stack.variants, "knobs": stack.knobs, "variant": stack.name}, own=False)


def label_of(stack: Stack) -> str:
    """The same of a stack that has no record yet."""
    return label({"variant": stack.name, "stack": stack.variants, "knobs": stack.knobs})


def error(row: Row) -> str | None:
    """`3.2e-07 / 4.0e-06`: the largest error beside what is allowed there; None where nothing was compared."""
    if row.max_error is None:
        return None
    allowed = "" if row.tolerance is None else f" / {row.tolerance:.1e}"
    return (f"{row.max_error:.1e}" if isinstance(row.max_error, float) else str(row.max_error)) + allowed


def finished(row: Row) -> str:
    """A stack that has just ended, in one line: verdict, and what is known of it."""
    if row.verdict != "PASSED":
        return f"{row.label}: {row.verdict} {row.reason}"
    known = [f"max error {error(row)} allowed"] if row.max_error is not None else []
    known += [] if row.grid_barriers is None else [f"{row.grid_barriers} grid barriers a token"]
    known += [f"{timed.microseconds:.1f} us a token at {timed.position}" for timed in row.latencies[:1]]
    return f"{row.label}: PASSED, {', '.join(known)}"


def labels(rows: Sequence[Row]) -> list[str]:
    """A name for each row, all of them different: rows of one label get the settings in which they differ.

    Last of all, for equal repetitions of one run, the record's id.
    """
    found = [row.label or row.variant for row in rows]
    for setting in SETTINGS:
        for name in {name for name in found if found.count(name) > 1}:
            same = [at for at, other in enumerate(found) if other == name]
            if len({getattr(rows[at], setting) for at in same}) > 1:
                for at in same:
                    found[at] = f"{name} {setting}={getattr(rows[at], setting)}"
    return found


def _tolerance(worst: Record) -> float | None:
    """A record keeps the error as a share of what it is allowed; None where that says nothing."""
    share = worst.get("ratio")
    return worst["error"] / share if isinstance(share, float) and share > 0 else None


def totals(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Every count, summed over the stages."""
    totals: dict[str, int] = {}
    for stage in counts.values():
        for name, value in stage.items():
            totals[name] = totals.get(name, 0) + value
    return totals


def _timed(found: Record) -> Timed:
    seconds = found["seconds"]
    return Timed(
        position=found["position"],
        microseconds=1e6 * seconds["median"],
        interval=(1e6 * seconds["low"], 1e6 * seconds["high"]),
        gb_per_s=found["bandwidth"] / 1e9,
        percent_of_ceiling=100 * found["of_ceiling"],
        verdict=found["verdict"] or "-",
        marks=tuple(found.get("marks", ())),
    )

"""Row of a run's table: the figures of one stack, from its record."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.devices.counters import WIDTHS
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, knob_values, knob_words

Record = Mapping[str, Any]
LABEL_SETTINGS = ("threads", "blocks", "model", "device", "gpu", "seed", "weights", "record")  # for rows of one label
IMPLAUSIBLE = "IMPLAUSIBLE"
STOPPED = "STOPPED"  # verdict of a measurement ended early: its stack is too slow to win a search


@dataclass(frozen=True)
class ArchResources:
    """Result of ptxas for one arch: registers of a thread, bytes spilled."""

    registers: int
    spill_bytes: int


@dataclass(frozen=True)
class Timed:
    """Time at one position on a GPU."""

    position: int
    microseconds: float  # a token, the median
    interval: tuple[float, float]  # 95 % bounds
    gb_per_s: float  # 10^9 bytes/s of the bytes that a token must read
    percent_of_ceiling: float | None  # share of the read-only bandwidth measured in the same run
    verdict: str  # against the parent
    marks: tuple[str, ...] = ()  # disturbances, such as throttling


@dataclass(frozen=True)
class Row:
    """Row of one stack in tables; a JSON row has the same fields."""

    variant: str  # as requested: a variant, a named stack, or the variants joined by "+"
    stack: tuple[str, ...]  # variants, innermost first
    verdict: str  # validation's: PASSED, MISMATCH, HUNG, ...
    reason: str = ""  # why it is not PASSED, in one line
    max_error: float | None = None  # absolute, at the tap nearest to its tolerance
    worst_stage: str | None = None  # stage of that tap
    grid_barriers: int | None = None  # a token
    load_bytes: Mapping[int, int] = field(default_factory=dict)  # weights and KV cache a token, by bits of a load
    activation_bytes: int | None = None  # activations loaded a token, by all blocks together
    resources: Mapping[str, ArchResources] = field(default_factory=dict)  # by arch, as `sm_90`
    latencies: tuple[Timed, ...] = ()  # by position; empty without a GPU
    generation: Timed | None = None  # many tokens from position 0 on
    record: str | None = None  # id in the store
    async_copy_bytes: int | None = None  # weights a token by cp.async
    prefetched_bytes: int | None = None  # weights a token that are requested ahead of their load
    label: str = ""  # `variant` with its knobs, and other variants' knobs that are not at their defaults
    parent: tuple[str, ...] = ()  # variants of the stack that it is compared with
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # {variant: {knob: value}}, all of them
    tolerance: float | None = None  # at the tap of `max_error`
    model: str | None = None  # name of the shape
    weights: str | None = None  # file, or recipe of synthetic ones
    device: str | None = None  # `ptx` or `cuda`
    gpu: str | None = None
    compiler: str | None = None
    seed: int | None = None  # for weights and inputs
    threads: int | None = None  # per block
    blocks: int | None = None  # in the grid; None where none was chosen
    source_sha: str | None = None  # sha256 of the flattened CUDA text
    results: str | None = None  # file of the store
    not_exercised: tuple[str, ...] = ()  # cases that the validation did not cover
    where: str | None = None  # GPUs on which it runs with these knobs, where knobs decide that

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


def error(row: Row) -> str | None:
    """`3.2e-07 / 4.0e-06`: the largest error and its tolerance; None where nothing was compared."""
    if row.max_error is None:
        return None
    allowed = "" if row.tolerance is None else f" / {row.tolerance:.1e}"
    return (f"{row.max_error:.1e}" if isinstance(row.max_error, float) else str(row.max_error)) + allowed


def finished(row: Row) -> str:
    """One line for a stack that has just ended: verdict and main figures."""
    if row.verdict != "PASSED":
        return f"{row.label}: {row.verdict} {row.reason}"
    figures = [f"max error {error(row)} allowed"] if row.max_error is not None else []
    figures += [] if row.grid_barriers is None else [f"{row.grid_barriers} grid barriers a token"]
    figures += [f"{timed.microseconds:.1f} us a token at {timed.position}" for timed in row.latencies[:1]]
    return f"{row.label}: PASSED, {', '.join(figures)}"


def labels(rows: Sequence[Row]) -> list[str]:
    """A different name for each row: its label, with the settings in which rows of one label differ.

    Equal repetitions of one run differ in the record's id.
    """
    names = [row.label or row.variant for row in rows]
    for setting in LABEL_SETTINGS:
        for name in {name for name in names if names.count(name) > 1}:
            same = [at for at, other in enumerate(names) if other == name]
            if len({getattr(rows[at], setting) for at in same}) > 1:
                for at in same:
                    names[at] = f"{name} {setting}={getattr(rows[at], setting)}"
    return names


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


def _timed(latency: Record) -> Timed:
    seconds = latency["seconds"]
    return Timed(
        position=latency["position"],
        microseconds=1e6 * seconds["median"],
        interval=(1e6 * seconds["low"], 1e6 * seconds["high"]),
        gb_per_s=latency["bandwidth"] / 1e9,
        percent_of_ceiling=100 * latency["of_ceiling"],
        verdict=latency["verdict"] or "-",
        marks=tuple(latency.get("marks", ())),
    )

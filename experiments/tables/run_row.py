"""Row of a run's table: figures of one stack, and their words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LABEL_SETTINGS = ("threads", "blocks", "model", "device", "gpu", "seed", "weights", "record")  # for rows of one label
IMPLAUSIBLE = "IMPLAUSIBLE"
STOPPED = "STOPPED"  # verdict of a measurement ended early: its stack is too slow to win a search


@dataclass(frozen=True)
class ArchResources:
    """Result of ptxas for one arch: registers of a thread, bytes spilled."""

    registers: int
    spill_bytes: int


@dataclass(frozen=True)
class TimedRow:
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
    latencies: tuple[TimedRow, ...] = ()  # by position; empty without a GPU
    generation: TimedRow | None = None  # many tokens from position 0 on
    record: str | None = None  # id in the store
    async_copy_bytes: int | None = None  # weights a token by cp.async
    prefetched_bytes: int | None = None  # a token: weights requested ahead of their load
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

    @property
    def times(self) -> tuple[TimedRow, ...]:
        return (*self.latencies, self.generation) if self.generation else self.latencies

    @property
    def sound(self) -> bool:
        """True if the row may stand in a table."""
        return self.verdict == "PASSED" and all(timed.verdict != IMPLAUSIBLE for timed in self.times)


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

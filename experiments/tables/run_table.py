"""Table of the stacks of a run or of all its jobs, and the same rows as JSON lines."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.compile.target import number
from common.config.run_config import RunConfig
from common.display.table import NAME, TEXT, Cell, Column, Table, terminal
from common.stacks.stack import title
from experiments.tables.commands import closing_lines, show_command
from experiments.tables.run_row import IMPLAUSIBLE, ArchResources, Row, TimedRow, error, labels

if TYPE_CHECKING:
    from rich.console import Console

GREEN = ("PASSED", "FASTER")
YELLOW = ("SAME", "SLOWER", "UNSTABLE", "REFUSED")
COUNTS_ONLY = "Counts of one token{}, not GPU time: these kernels ran on the CPU. Time needs a CUDA GPU."


def show_json(rows: Iterable[Row]) -> None:
    """One JSON object a row on stdout: the fields of `Row`, null for an unknown one.

    `record` is the id for `python -m experiments.show`, which prints the whole record: counts by stage, every sample,
    clocks, provenance.
    """
    for row in rows:
        print(json.dumps(dataclasses.asdict(row)))


@dataclass(frozen=True)
class Job:
    """The rows of one job, and its settings. model: the name of its shape."""

    rows: Sequence[Row]
    model: str
    config: RunConfig

    @property
    def heading(self) -> tuple[str, str, str]:
        config = self.config
        where = f"{self.model} on {config.device.name} ({config.device.why})"
        return where, f"weights {config.weights}", f"seed {config.seed}"


def show_jobs(jobs: Sequence[Job]) -> int:
    """Print one table of the rows of all jobs, with a heading of what they share, and the place of their records; 0."""
    jobs = [job for job in jobs if job.rows]
    if not jobs:
        return 0
    shared = [parts[0] for parts in zip(*(job.heading for job in jobs), strict=True) if len(set(parts)) == 1]
    device = next((name for job in jobs if (name := job.config.device.name) != "cuda"), "cuda")
    show_tables([row for job in jobs for row in job.rows], ", ".join(shared), device)
    for path in sorted({job.config.results for job in jobs}):
        rows = (row for job in jobs if job.config.results == path for row in job.rows)
        print(closing_lines([row.record for row in rows if row.record], path))
    return 0


def show_tables(rows: Sequence[Row], heading: str, device: str, console: "Console | None" = None) -> None:
    """Print `rows` under `heading`; on a CPU with notes on the figures."""
    table = run_table(rows)
    if device != "cuda":
        models = ", ".join(dict.fromkeys(row.model for row in rows if row.model))
        table = replace(table, notes=[*table.notes, COUNTS_ONLY.format(models and f" of {models}")])
    terminal(table, console, heading)


def run_table(rows: Sequence[Row]) -> Table:
    """A row for each stack that passed with possible times; notes name the others, and the command that shows them."""
    rows = [replace(row, label=name) for row, name in zip(rows, labels(rows), strict=True)]
    columns, cells = zip(*_columns([row for row in rows if row.sound]), strict=True)
    return Table(columns, list(zip(*cells, strict=True)), [line for row in rows for line in _remarks(row)])


def _remarks(row: Row) -> Iterator[str]:
    if row.verdict != "PASSED":
        command = f"; {show_command(row.record, Path(row.results))}" if row.record and row.results else ""
        yield f"{row.label}: {row.verdict} {row.reason}{command}"
    for timed in row.times:
        if timed.verdict == IMPLAUSIBLE:
            share = f"{timed.gb_per_s:.0f} GB/s, {timed.percent_of_ceiling or 0:.0f} % of the read ceiling"
            yield f"{row.label}: {IMPLAUSIBLE} {share}, from position {timed.position}"
        for mark in timed.marks:
            yield f"{row.label}: from position {timed.position}, {mark}"


def _columns(rows: Sequence[Row]) -> Iterator[tuple[Column, list[Any]]]:
    """Columns by subject, with the cells of all rows; columns without a value are left out."""
    yield Column("variant", NAME), [row.label for row in rows]
    yield Column("stack", TEXT, "proof"), [title(row.stack) for row in rows]
    yield Column("verdict", TEXT, "proof"), [_verdict(row.verdict) for row in rows]
    yield Column("max error\n/ allowed", group="proof"), [error(row) for row in rows]
    yield Column("at stage", TEXT, "proof"), [row.worst_stage for row in rows]
    yield from _counts(rows)
    archs = {arch for row in rows for arch in row.resources}
    for arch in sorted(archs, key=number):
        yield Column(f"{arch}\nregs/spill", group="resources"), [_registers(row.resources.get(arch)) for row in rows]
    positions = sorted({timed.position for row in rows for timed in row.latencies})
    for position in positions:
        yield from _times(rows, position, with_bandwidth=position == positions[0])
    if positions:
        yield Column("tokens/s"), [row.generation and f"{1e6 / row.generation.microseconds:.0f}" for row in rows]


def _counts(rows: Sequence[Row]) -> Iterator[tuple[Column, list[Any]]]:
    widths = sorted({width for row in rows for width in row.load_bytes})
    if widths:
        barriers = [None if row.grid_barriers is None else str(row.grid_barriers) for row in rows]
        yield Column("grid barriers\na token", group="counts"), barriers
    for width in widths:
        loads = [_bytes(row.load_bytes.get(width, 0)) if row.load_bytes else None for row in rows]
        yield Column(f"{width}-bit\nloads", group="counts"), loads
    if any(row.async_copy_bytes for row in rows):
        yield Column("cp.async\nbytes", group="counts"), [_bytes(row.async_copy_bytes) for row in rows]
    if any(row.prefetched_bytes for row in rows):
        yield Column("prefetched\nbytes", group="counts"), [_bytes(row.prefetched_bytes) for row in rows]
    if widths:
        yield Column("activation\nloads", group="counts"), [_bytes(row.activation_bytes) for row in rows]


def _times(rows: Sequence[Row], position: int, with_bandwidth: bool) -> Iterator[tuple[Column, list[Any]]]:
    """Columns of one position."""
    group = f"position {position}"
    times = [next((timed for timed in row.latencies if timed.position == position), None) for row in rows]
    yield Column(f"us a token\nat {position}", group=group), [timed and _latency(timed) for timed in times]
    if with_bandwidth:
        yield Column("GB/s", group=group), [timed and f"{timed.gb_per_s:.0f}" for timed in times]
        shares = [timed and timed.percent_of_ceiling for timed in times]
        yield Column("% of read\nceiling", group=group), [None if share is None else f"{share:.1f}" for share in shares]
    yield Column("against\nparent", TEXT, group), [timed and _verdict(timed.verdict) for timed in times]


def _latency(timed: TimedRow) -> str:
    half = (timed.interval[1] - timed.interval[0]) / 2
    return f"{timed.microseconds:.1f} ±{100 * half / timed.microseconds:.2f} %"


def _verdict(word: str) -> Cell:
    return Cell(word, "green" if word in GREEN else "yellow" if word in YELLOW else "red")


def _registers(used: ArchResources | None) -> Cell | None:
    return Cell(f"{used.registers}/{used.spill_bytes}", "red" if used.spill_bytes else "") if used else None


def _bytes(count: int | None) -> str | None:
    """`1.19 GB`, with decimal prefixes as bandwidths have."""
    if not count:
        return None if count is None else "0"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"

"""Table of the stacks of a run or of all its jobs, and the same rows as JSON lines."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.compile.target import number
from common.config.run_config import RunConfig
from common.devices.counters import WIDTHS
from common.display.table import NAME, TEXT, Cell, Column, Table, terminal
from common.record.measurement import IMPLAUSIBLE
from common.stacks.stack import title
from experiments.tables.commands import closing_lines, show_command
from experiments.tables.row import Record, count, error, labels, microseconds, times

if TYPE_CHECKING:
    from rich.console import Console

BITS = [8 * width for width in WIDTHS]  # width of one load
GREEN = ("PASSED", "FASTER")
YELLOW = ("SAME", "SLOWER", "UNSTABLE", "REFUSED")
COUNTS_ONLY = "Counts of one token{}, not GPU time: these kernels ran on the CPU. Time needs a CUDA GPU."


def show_json(rows: Iterable[Record]) -> None:
    """Each record as a JSON object on a line of stdout, as `python -m experiments.show ID json=true` prints it."""
    for row in rows:
        print(json.dumps(row))


@dataclass(frozen=True)
class Job:
    """The records of one job, `results` with each, and its settings. model: the name of its shape."""

    rows: Sequence[Record]
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
        print(closing_lines([row["id"] for row in rows], path))
    return 0


def show_tables(rows: Sequence[Record], heading: str, device: str, console: "Console | None" = None) -> None:
    """Print `rows` under `heading`; on a CPU with notes on the figures."""
    table = run_table(rows)
    if device != "cuda":
        models = ", ".join(dict.fromkeys(row["model"]["name"] for row in rows))
        table = replace(table, notes=[*table.notes, COUNTS_ONLY.format(models and f" of {models}")])
    terminal(table, console, heading)


def run_table(rows: Sequence[Record]) -> Table:
    """A row for each stack that passed with possible times; notes name the others, and the command that shows them."""
    named = list(zip(labels(rows), rows, strict=True))
    columns, cells = zip(*_columns([(name, row) for name, row in named if _is_sound(row)]), strict=True)
    return Table(columns, list(zip(*cells, strict=True)), [line for each in named for line in _remarks(*each)])


def _is_sound(row: Record) -> bool:
    return row["status"] == "PASSED" and all(timed["verdict"] != IMPLAUSIBLE for timed in times(row))


def _remarks(name: str, row: Record) -> Iterator[str]:
    if row["status"] != "PASSED":
        command = f"; {show_command(row['id'], Path(row['results']))}" if "results" in row else ""
        yield f"{name}: {row['status']} {row['reason']}{command}"
    for timed in times(row):
        if timed["verdict"] == IMPLAUSIBLE:
            share = f"{timed['bandwidth'] / 1e9:.0f} GB/s, {100 * timed['of_ceiling']:.0f} % of the read ceiling"
            yield f"{name}: {IMPLAUSIBLE} {share}, from position {timed['position']}"
        for mark in timed.get("marks", ()):
            yield f"{name}: from position {timed['position']}, {mark}"


def _columns(named: Sequence[tuple[str, Record]]) -> Iterator[tuple[Column, list[Any]]]:
    """Columns by subject, with the cells of all rows; columns without a value are left out."""
    rows = [row for _, row in named]
    yield Column("variant", NAME), [name for name, _ in named]
    yield Column("stack", TEXT, "proof"), [title(row["stack"]) for row in rows]
    yield Column("verdict", TEXT, "proof"), [_verdict(row["status"]) for row in rows]
    yield Column("max error\n/ allowed", group="proof"), [error(row) for row in rows]
    yield Column("at stage", TEXT, "proof"), [row["verdict"] and row["verdict"]["worst"]["stage"] for row in rows]
    yield from _counts(rows)
    archs = {arch for row in rows for arch in row["resources"]}
    for arch in sorted(archs, key=number):
        used = [row["resources"].get(arch) for row in rows]
        yield Column(f"{arch}\nregs/spill", group="resources"), [each and _registers(each) for each in used]
    positions = sorted({timed["position"] for row in rows for timed in row["latencies"]})
    for position in positions:
        yield from _times(rows, position, with_bandwidth=position == positions[0])
    if positions:
        whole = [row["generation"] for row in rows]
        yield Column("steps/s"), [timed and f"{1e6 / microseconds(timed):.0f}" for timed in whole]


def _counts(rows: Sequence[Record]) -> Iterator[tuple[Column, list[Any]]]:
    def sums(*fields: str) -> list[int | None]:
        return [count(row, *fields) for row in rows]

    loads = {bits: sums(f"weights_{bits}bit", f"kv_{bits}bit") for bits in BITS}
    loads = {bits: each for bits, each in loads.items() if any(each)}
    if loads:
        yield Column("grid barriers\na token", group="counts"), sums("grid_barriers")
    for bits, each in loads.items():
        yield Column(f"{bits}-bit\nloads", group="counts"), [*map(_bytes, each)]
    for head, fields in (("cp.async", ("copied_async", "copied_bulk")), ("prefetched", ("prefetched",))):
        if any(moved := sums(*fields)):
            yield Column(f"{head}\nbytes", group="counts"), [*map(_bytes, moved)]
    if loads:
        read = sums(*(f"activations_{bits}bit" for bits in BITS))
        yield Column("activation\nloads", group="counts"), [*map(_bytes, read)]


def _times(rows: Sequence[Record], position: int, with_bandwidth: bool) -> Iterator[tuple[Column, list[Any]]]:
    """Columns of one position."""
    group = f"position {position}"
    found = [next((timed for timed in row["latencies"] if timed["position"] == position), None) for row in rows]

    def cells(text: Callable[[Record], Any]) -> list[Any]:
        return [timed and text(timed) for timed in found]

    yield Column(f"us a step\nat {position}", group=group), cells(_latency)
    if with_bandwidth:
        yield Column("GB/s", group=group), cells(lambda timed: f"{timed['bandwidth'] / 1e9:.0f}")
        yield Column("% of read\nceiling", group=group), cells(lambda timed: f"{100 * timed['of_ceiling']:.1f}")
    yield Column("against\nparent", TEXT, group), cells(lambda timed: _verdict(timed["verdict"] or "-"))


def _latency(timed: Record) -> str:
    low, middle, high = (timed["seconds"][name] for name in ("low", "median", "high"))
    return f"{1e6 * middle:.1f} ±{50 * (high - low) / middle:.2f} %"


def _verdict(word: str) -> Cell:
    return Cell(word, "green" if word in GREEN else "yellow" if word in YELLOW else "red")


def _registers(used: Record) -> Cell:
    return Cell(f"{used['registers']}/{used['spill_bytes']}", "red" if used["spill_bytes"] else "")


def _bytes(count: int | None) -> str | None:
    """`1.19 GB`, with decimal prefixes as bandwidths have."""
    if not count:
        return None if count is None else "0"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"

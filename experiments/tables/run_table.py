"""Table of the stacks of a run, and the same rows as JSON lines."""

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.display.table import NAME, TEXT, Cell, Column, Table, terminal
from common.stacks.stack import title
from experiments.tables.closing import show_command
from experiments.tables.row import IMPLAUSIBLE, NOT_MODELLED, ArchResources, Forecast, Row, Timed, error, labels

if TYPE_CHECKING:
    from rich.console import Console

GREEN = ("PASSED", "FASTER")
YELLOW = ("SAME", "SLOWER", "UNSTABLE", "REFUSED")
COUNTS_ONLY = "Counts and facts, not GPU time: these kernels ran on the CPU. Time needs a CUDA GPU."
PREDICTED = (
    "Predicted: a token of {} at position {} on {}, from exact counts and SASS: neither a bound nor a measurement; "
    "in brackets, what the unknown constants of the GPU allow. experiment=predict prints its error. "
    f"{NOT_MODELLED}: the model sees no difference."
)
Filled = tuple[Column, Callable[[Row], str | Cell]]


def show_json(rows: Iterable[Row]) -> None:
    """One JSON object a row on stdout: the fields of `Row`, null for an unknown one.

    `record` is the id for `python -m experiments.show`, which prints the whole record: counts by stage, every sample,
    clocks, provenance.
    """
    for row in rows:
        print(json.dumps(dataclasses.asdict(row)))


def show_tables(rows: Sequence[Row], heading: str, device: str, console: "Console | None" = None) -> None:
    """Print `rows` under `heading`; on the host device, with what its figures are."""
    table = run_table(rows)
    if device == "host":
        known = {one.forecast for one in rows if one.sound and one.forecast and one.forecast.microseconds}
        places = sorted({(one.model, one.position, one.gpu) for one in known})
        table = replace(table, notes=[*table.notes, COUNTS_ONLY, *(PREDICTED.format(*place) for place in places)])
    terminal(table, console, heading)


def run_table(rows: Sequence[Row]) -> Table:
    """A row for each stack that passed with possible times; notes name the others, and the command that shows them."""
    rows = [replace(row, label=name) for row, name in zip(rows, labels(rows), strict=True)]
    sound = [row for row in rows if row.sound]
    columns = list(_columns(sound))
    cells = [[cell(row) for _, cell in columns] for row in sound]
    return Table([column for column, _ in columns], cells, [line for row in rows for line in _remarks(row)])


def _remarks(row: Row) -> Iterator[str]:
    if row.verdict != "PASSED":
        command = f"; {show_command(row.record, Path(row.results))}" if row.record and row.results else ""
        yield f"{row.label}: {row.verdict} {row.reason}{command}"
    if row.forecast and row.forecast.microseconds is None:
        yield f"{row.label}: not predicted, {row.forecast.note}"
    for timed in row.times:
        if timed.verdict == IMPLAUSIBLE:
            share = f"{timed.gb_per_s:.0f} GB/s, {timed.percent_of_ceiling or 0:.0f} % of the read ceiling"
            yield f"{row.label}: {IMPLAUSIBLE} {share}, from position {timed.position}"
        for mark in timed.marks:
            yield f"{row.label}: from position {timed.position}, {mark}"


def _columns(rows: Sequence[Row]) -> Iterator[Filled]:
    """Columns by subject; those that no row has a value for are left out."""
    yield Column("variant", NAME), lambda row: row.label
    yield Column("stack", TEXT, "proof"), lambda row: title(row.stack)
    yield Column("verdict", TEXT, "proof"), lambda row: _verdict(row.verdict)
    yield Column("max error\n/ allowed", group="proof"), lambda row: error(row) or "-"
    yield Column("at stage", TEXT, "proof"), lambda row: row.worst_stage or "-"
    widths = sorted({width for row in rows for width in row.load_bytes})
    if widths:
        yield Column("grid barriers\na token", group="counts"), lambda row: _or_dash(row.grid_barriers, str)
    for width in widths:
        yield Column(f"{width}-bit\nloads", group="counts"), _loaded(width)
    if any(row.async_copy_bytes for row in rows):
        yield Column("cp.async\nbytes", group="counts"), lambda row: _or_dash(row.async_copy_bytes, _bytes)
    if any(row.prefetched_bytes for row in rows):
        yield Column("prefetched\nbytes", group="counts"), lambda row: _or_dash(row.prefetched_bytes, _bytes)
    if widths:
        yield Column("activation\nloads", group="counts"), lambda row: _or_dash(row.activation_bytes, _bytes)
    archs = {arch for row in rows for arch in row.resources}
    for arch in sorted(archs, key=lambda arch: int(arch.removeprefix("sm_"))):
        yield Column(f"{arch}\nregs/spill", group="resources"), _compiled(arch)
    positions = sorted({timed.position for row in rows for timed in row.latencies})
    for position in positions:
        yield from _timing(position, with_bandwidth=position == positions[0])
    if positions:
        yield Column("tokens/s"), lambda row: _or_dash(row.generation, lambda timed: f"{1e6 / timed.microseconds:.0f}")
    if any(row.forecast and row.forecast.microseconds for row in rows):
        yield from _predicted(rows)


def _predicted(rows: Sequence[Row]) -> Iterator[Filled]:
    """Columns of the forecast. Where the jobs of a multirun have several GPUs, each cell names its own."""
    gpus = {row.forecast.gpu for row in rows if row.forecast}
    model = next(row.forecast.model for row in rows if row.forecast)
    gpu, each = ("", gpus) if len(gpus) > 1 else (f", {''.join(gpus)}", ())
    yield Column("parent", TEXT, "forecast"), lambda row: title(row.forecast.parent) if row.forecast else "-"
    yield Column(f"predicted us\n{model}{gpu}", group="forecast"), lambda row: _microseconds(row.forecast, each)
    yield Column("against\nparent", group="forecast"), lambda row: _effect(row.forecast)


def _loaded(width: int) -> Callable[[Row], str]:
    """Bytes that loads of `width` bits read."""
    return lambda row: _bytes(row.load_bytes.get(width, 0)) if row.load_bytes else "-"


def _compiled(arch: str) -> Callable[[Row], str | Cell]:
    """Registers and spills on `arch`."""
    return lambda row: _or_dash(row.resources.get(arch), _registers)


def _timing(position: int, with_bandwidth: bool) -> Iterator[Filled]:
    """Columns of one position."""

    def shown(show: Callable[[Timed], str | Cell]) -> Callable[[Row], str | Cell]:
        return lambda row: next((show(timed) for timed in row.latencies if timed.position == position), "-")

    group = f"position {position}"
    yield Column(f"us a token\nat {position}", group=group), shown(_latency)
    if with_bandwidth:
        yield Column("GB/s", group=group), shown(lambda timed: f"{timed.gb_per_s:.0f}")
        yield Column("% of read\nceiling", group=group), shown(_of_ceiling)
    yield Column("against\nparent", TEXT, group), shown(lambda timed: _verdict(timed.verdict))


def _latency(timed: Timed) -> str:
    half = (timed.interval[1] - timed.interval[0]) / 2
    return f"{timed.microseconds:.1f} ±{100 * half / timed.microseconds:.2f} %"


def _of_ceiling(timed: Timed) -> str | Cell:
    return _or_dash(timed.percent_of_ceiling, "{:.1f}".format)


def _verdict(word: str) -> Cell:
    return Cell(word, "green" if word in GREEN else "yellow" if word in YELLOW else "red")


def _registers(used: ArchResources) -> Cell:
    return Cell(f"{used.registers}/{used.spill_bytes}", "red" if used.spill_bytes else "")


def _or_dash(value: Any, show: Callable[[Any], str | Cell]) -> str | Cell:
    return "-" if value is None else show(value)


def _microseconds(forecast: Forecast | None, named: Collection[str]) -> str:
    """`1,766 [1,640, 1,980]`: the prediction and its interval, with the GPU where it is one of `named`."""
    if forecast is None or forecast.microseconds is None:
        return "-"
    low, high = forecast.interval or (forecast.microseconds, forecast.microseconds)
    gpu = f" {forecast.gpu}" if forecast.gpu in named else ""
    return f"{forecast.microseconds:,.0f} [{low:,.0f}, {high:,.0f}]{gpu}"


def _effect(forecast: Forecast | None) -> str:
    if forecast is None or forecast.effect is None:
        return forecast.note if forecast and forecast.microseconds and forecast.note else "-"
    low, high = forecast.effect_interval or (forecast.effect, forecast.effect)
    return f"{100 * forecast.effect:+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]"


def _bytes(count: int) -> str:
    """`1.19 GB`, with decimal prefixes as bandwidths have."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B" if count else "0"

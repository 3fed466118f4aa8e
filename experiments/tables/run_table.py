"""Tables of a run that fit the terminal, and the same rows as JSON lines."""

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from common.display.shown import html_table
from common.stacks.stack import title
from experiments.tables.closing import show_command
from experiments.tables.name import in_lines
from experiments.tables.row import IMPLAUSIBLE, NOT_MODELLED, ArchResources, Forecast, Row, Timed, error, labels

GREEN = ("PASSED", "FASTER")
YELLOW = ("SAME", "SLOWER", "UNSTABLE", "REFUSED")
PLAIN_WIDTH = 100  # columns where the output is no terminal
NAME_WIDTH = 24  # columns from which the name of a row is broken into lines; of a narrow terminal fewer
LEAST_WIDTH = 8
GAP = 3  # columns between two cells
COUNTS_ONLY = "Counts and facts, not GPU time: these kernels ran on the CPU. Time needs a CUDA GPU."
PREDICTED = (
    "Predicted: a token of {} at position {} on {}, from exact counts and SASS: neither a bound nor a measurement; "
    "in brackets, what the unknown constants of the GPU allow. experiment=predict prints its error. "
    f"{NOT_MODELLED}: the model sees no difference."
)


class _Column(NamedTuple):
    head: str
    cell: Callable[[Row], str | Text]
    justify: str = "right"


def show_json(rows: Iterable[Row]) -> None:
    """One JSON object a row on stdout. Its fields are those of `Row`; nothing is left out, null stands for unknown.

    Nested: `resources` {arch: {registers, spill_bytes}}; `latencies` and `generation` as `Timed`, a list and one of
    them; `forecast` as `Forecast`, with the GPU, model and position that it is for; `knobs` {variant: {knob: value}};
    `load_bytes` {bits of a load: bytes a token}. `record` is the id for `python -m experiments.show`, which prints the
    whole record: counts by stage, every sample, clocks, provenance.
    """
    for row in rows:
        print(json.dumps(dataclasses.asdict(row)))


def show_tables(rows: Sequence[Row], heading: str, device: str, console: Console | None = None) -> None:
    """Print `rows` under `heading`; columns that do not fit side by side go to further tables, none is cut off.

    What did not pass, or has a time that cannot be, is in no table: it is named below them, with the reason, and with
    the command that shows its record.
    """
    console = console or _console()
    console.print(Text(heading, style="bold"), soft_wrap=True)
    rows = _labelled(rows)
    sound = [row for row in rows if row.sound]
    for table in _fit(sound, console) if sound else ():
        console.print(table)
        console.print()
    for line in (line for row in rows for line in _remarks(row)):
        console.print(Text(line), soft_wrap=True)
    if device == "host":
        console.print(Text(COUNTS_ONLY, style="italic"))
        known = (row.forecast for row in sound if row.forecast and row.forecast.microseconds)
        for model, position, gpu in sorted({(one.model, one.position, one.gpu) for one in known}):
            console.print(Text(PREDICTED.format(model, position, gpu), style="italic"), soft_wrap=True)


def html(rows: Sequence[Row]) -> str:
    """The same for a notebook: one table of all columns, and below it what is said of rows that are in no table."""
    rows = _labelled(rows)
    sound = [row for row in rows if row.sound]
    groups = _groups(sound, NAME_WIDTH)
    columns = [_Column("variant", lambda row: row.label), *(each for group in groups for each in group)]
    heads = [column.head.replace("\n", " ") for column in columns]
    table = html_table(heads, [[str(column.cell(row)) for column in columns] for row in sound]) if sound else ""
    return table + "".join(f"<p>{escape(line)}</p>" for row in rows for line in _remarks(row))


def _labelled(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, label=name) for row, name in zip(rows, labels(rows), strict=True)]


def _remarks(row: Row) -> Iterator[str]:
    """Remarks on a row beside the tables, a line each."""
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


def _console() -> Console:
    plain = Console()
    if plain.is_terminal or "COLUMNS" in os.environ:
        return plain
    return Console(width=PLAIN_WIDTH)


def _fit(rows: Sequence[Row], console: Console) -> list[Table]:
    """As few tables as the width allows. Groups of columns stay together; every table begins with the variant."""

    def width(columns: Sequence[_Column], least: bool = False) -> int:
        found = Measurement.get(console, console.options.update(max_width=10_000), _table(rows, columns))
        return found.minimum if least and any(column.head == "stack" for column in columns) else found.maximum

    groups = _groups(rows, min(NAME_WIDTH, console.width // 2 - GAP))
    room = console.width - GAP - max(width([column], least=True) for group in groups for column in group)
    name_width = max(LEAST_WIDTH, min(NAME_WIDTH, room))
    key = _Column("variant", lambda row: in_lines(row.label, name_width), "left")

    def fits(columns: Sequence[_Column]) -> bool:
        return width([key, *columns], least=True) <= console.width

    whole = [[group] if fits(group) else [[column] for column in group] for group in groups]
    packed: list[list[_Column]] = []
    for group in (part for parts in whole for part in parts):
        if packed and width([key, *packed[-1], *group]) <= console.width:
            packed[-1] += group
        else:
            packed.append(list(group))
    return [_table(rows, [key, *columns]) for columns in packed]


def _table(rows: Sequence[Row], columns: Sequence[_Column]) -> Table:
    table = Table(header_style="bold", show_edge=False, pad_edge=False)
    for column in columns:
        # Only the stack may be broken into lines: it is the one cell that can be longer than a terminal is wide.
        table.add_column(column.head, justify=column.justify, no_wrap=column.head != "stack")  # type: ignore[arg-type]
    for row in rows:
        cells = (column.cell(row) for column in columns)
        # A str would be read as markup, and lose the list of `matrices=[o,gate]`.
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


def _groups(rows: Sequence[Row], name_width: int) -> list[list[_Column]]:
    """Columns by subject; what no row has is left out."""
    proof = [
        _Column("stack", lambda row: title(row.stack), "left"),
        _Column("verdict", lambda row: _verdict(row.verdict), "left"),
        _Column("max error\n/ allowed", lambda row: error(row) or "-"),
        _Column("at stage", lambda row: row.worst_stage or "-", "left"),
    ]
    widths = sorted({width for row in rows for width in row.load_bytes})
    counts = [_Column("grid barriers\na token", lambda row: _or_dash(row.grid_barriers, str))] if widths else []
    counts += [_Column(f"{width}-bit\nloads", _loaded(width)) for width in widths]
    if any(row.async_copy_bytes for row in rows):
        counts += [_Column("cp.async\nbytes", lambda row: _or_dash(row.async_copy_bytes, _bytes))]
    if any(row.prefetched_bytes for row in rows):
        counts += [_Column("prefetched\nbytes", lambda row: _or_dash(row.prefetched_bytes, _bytes))]
    counts += [_Column("activation\nloads", lambda row: _or_dash(row.activation_bytes, _bytes))] if widths else []
    archs = sorted({arch for row in rows for arch in row.resources}, key=lambda arch: int(arch.removeprefix("sm_")))
    resources = [_Column(f"{arch}\nregs/spill", _compiled(arch)) for arch in archs]
    positions = sorted({timed.position for row in rows for timed in row.latencies})
    times = [_timing(position)[:: 1 if position == positions[0] else 3] for position in positions]
    speed = _Column("tokens/s", lambda row: _or_dash(row.generation, lambda timed: f"{1e6 / timed.microseconds:.0f}"))
    predicted = _predicted(rows, name_width) if any(row.forecast and row.forecast.microseconds for row in rows) else []
    return [group for group in (proof, counts, resources, *times, [speed] if positions else [], predicted) if group]


def _predicted(rows: Sequence[Row], name_width: int) -> list[_Column]:
    """The columns of the forecast. Where the jobs of a multirun have several GPUs, each cell says its own."""
    gpus = {row.forecast.gpu for row in rows if row.forecast}
    model = next(row.forecast.model for row in rows if row.forecast)
    gpu, each = ("", gpus) if len(gpus) > 1 else (f", {''.join(gpus)}", ())

    def parent(row: Row) -> str:
        return in_lines(title(row.forecast.parent), name_width) if row.forecast else "-"

    return [
        _Column("parent", parent, "left"),
        _Column(f"predicted us\n{model}{gpu}", lambda row: _microseconds(row.forecast, each)),
        _Column("against\nparent", lambda row: _effect(row.forecast)),
    ]


def _loaded(width: int) -> Callable[[Row], str]:
    """The bytes that loads of `width` bits read."""
    return lambda row: _bytes(row.load_bytes.get(width, 0)) if row.load_bytes else "-"


def _compiled(arch: str) -> Callable[[Row], Text]:
    """Registers and spills on `arch`."""
    return lambda row: _registers(row.resources.get(arch))


def _timing(position: int) -> list[_Column]:
    """The columns of one position: the latency first, the verdict last, the bandwidth between them."""

    def cell(show: Callable[[Timed], str | Text]) -> Callable[[Row], str | Text]:
        return lambda row: next((show(timed) for timed in row.latencies if timed.position == position), "-")

    return [
        _Column(f"us a token\nat {position}", cell(_latency)),
        _Column("GB/s", cell(lambda timed: f"{timed.gb_per_s:.0f}")),
        _Column("% of read\nceiling", cell(_of_ceiling)),
        _Column("against\nparent", cell(lambda timed: _verdict(timed.verdict)), "left"),
    ]


def _latency(timed: Timed) -> str:
    half = (timed.interval[1] - timed.interval[0]) / 2
    return f"{timed.microseconds:.1f} ±{100 * half / timed.microseconds:.2f} %"


def _of_ceiling(timed: Timed) -> str:
    return _or_dash(timed.percent_of_ceiling, lambda share: f"{share:.1f}")


def _verdict(word: str) -> Text:
    return Text(word, style="green" if word in GREEN else "yellow" if word in YELLOW else "red")


def _registers(found: ArchResources | None) -> Text:
    if found is None:
        return Text("-")
    return Text(f"{found.registers}/{found.spill_bytes}", style="red" if found.spill_bytes else "")


def _or_dash(value: Any, show: Callable[[Any], str]) -> str:
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

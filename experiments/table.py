"""The end of a run: rows as tables that fit the terminal, or as JSON lines."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from common.stack import title
from experiments.prediction.forecast import GPU, MODEL, POSITION, Forecast

GREEN = ("PASSED", "FASTER")
YELLOW = ("SAME", "SLOWER", "UNSTABLE", "REFUSED")
IMPLAUSIBLE = "IMPLAUSIBLE"
PLAIN_WIDTH = 100  # columns where the output is no terminal
COUNTS_ONLY = "Counts and facts, not GPU time: these kernels ran on the CPU. Time needs a CUDA GPU."
PREDICTED = f"Predicted: a token of {MODEL} at position {POSITION}, from exact counts of it; see experiment=predict."


@dataclass(frozen=True)
class Fact:
    """What ptxas made of the kernel for one arch: registers of a thread, bytes spilled."""

    registers: int
    spill_bytes: int


@dataclass(frozen=True)
class Timed:
    """One position on a GPU.

    latency in microseconds a token (median); interval: its 95 % bounds; gbps: 10^9 bytes/s of the bytes a token must
    read; ceiling: percent of the read-only bandwidth measured in the same run; verdict: against the parent; marks: what
    disturbed the measurement, such as throttling.
    """

    position: int
    latency: float
    interval: tuple[float, float]
    gbps: float
    ceiling: float | None
    verdict: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """What is shown of one stack.

    verdict  of validation; `reason` says in one line why it is not PASSED
    error    largest error over all taps, relative as the check defines it; `stage` is where
    barriers grid barriers a token; loads: bytes of weights and KV cache a token, by the width of the load in bits;
             activations: bytes of them loaded a token, by all blocks together
    facts    by arch, as `sm_90`
    timed    by position, empty without a GPU; generation: of many tokens from position 0 on
    record   id in the store
    copied   bytes of weights a token by cp.async; prefetched: bytes asked for ahead of their load
    forecast of its time, where there is no GPU to measure it
    """

    variant: str
    stack: tuple[str, ...]
    verdict: str
    reason: str = ""
    error: float | None = None
    stage: str | None = None
    barriers: int | None = None
    loads: Mapping[int, int] = field(default_factory=dict)
    activations: int | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    timed: tuple[Timed, ...] = ()
    generation: Timed | None = None
    record: str | None = None
    copied: int | None = None
    prefetched: int | None = None
    forecast: Forecast | None = None

    @property
    def times(self) -> tuple[Timed, ...]:
        return (*self.timed, self.generation) if self.generation else self.timed

    @property
    def sound(self) -> bool:
        """Whether the row may stand in a table."""
        return self.verdict == "PASSED" and all(timed.verdict != IMPLAUSIBLE for timed in self.times)


class _Column(NamedTuple):
    head: str
    cell: Callable[[Row], str | Text]
    justify: str = "right"


def show_json(rows: Iterable[Row]) -> None:
    """One JSON object a row on stdout."""
    for row in rows:
        print(json.dumps(dataclasses.asdict(row)))


def show_tables(rows: Sequence[Row], heading: str, device: str, console: Console | None = None) -> None:
    """Print `rows` under `heading`; columns that do not fit side by side go to further tables, none is cut off.

    What did not pass, or has a time that cannot be, is in no table: it is named below them, with the reason.
    """
    console = console or _console()
    console.print(Text(heading, style="bold"), soft_wrap=True)
    sound = [row for row in rows if row.sound]
    for table in _fit(sound, console) if sound else ():
        console.print(table)
        console.print()
    for line in (line for row in rows for line in _remarks(row)):
        console.print(Text(line), soft_wrap=True)
    if device == "host":
        console.print(Text(COUNTS_ONLY, style="italic"))
        if any(row.forecast for row in sound):
            console.print(Text(PREDICTED, style="italic"), soft_wrap=True)


def _remarks(row: Row) -> Iterator[str]:
    """What is said of a row beside the tables, a line each."""
    if row.verdict != "PASSED":
        yield f"{row.variant}: {row.verdict} {row.reason}"
    for timed in row.times:
        if timed.verdict == IMPLAUSIBLE:
            share = f"{timed.gbps:.0f} GB/s, {timed.ceiling or 0:.0f} % of the read ceiling"
            yield f"{row.variant}: {IMPLAUSIBLE} {share}, from position {timed.position}"
        for mark in timed.marks:
            yield f"{row.variant}: from position {timed.position}, {mark}"


def _console() -> Console:
    plain = Console()
    if plain.is_terminal or "COLUMNS" in os.environ:
        return plain
    return Console(width=PLAIN_WIDTH)


def _fit(rows: Sequence[Row], console: Console) -> list[Table]:
    """As few tables as the width allows. Groups of columns stay together; every table begins with the variant."""
    key = _Column("variant", lambda row: row.variant, "left")

    def width(columns: Sequence[_Column]) -> Measurement:
        return Measurement.get(console, console.options.update(max_width=10_000), _table(rows, [key, *columns]))

    def fits(columns: Sequence[_Column]) -> bool:
        wrapped = any(column.head == "stack" for column in columns)
        return (width(columns).minimum if wrapped else width(columns).maximum) <= console.width

    whole = [[group] if fits(group) else [[column] for column in group] for group in _groups(rows)]
    packed: list[list[_Column]] = []
    for group in (part for parts in whole for part in parts):
        if packed and width([*packed[-1], *group]).maximum <= console.width:
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
        table.add_row(*(column.cell(row) for column in columns))
    return table


def _groups(rows: Sequence[Row]) -> list[list[_Column]]:
    """Columns by subject; what no row has is left out."""
    proof = [
        _Column("stack", lambda row: title(row.stack), "left"),
        _Column("verdict", lambda row: _verdict(row.verdict), "left"),
        _Column("max error", lambda row: _or_dash(row.error, lambda error: f"{error:.1e}")),
        _Column("at stage", lambda row: row.stage or "-", "left"),
    ]
    widths = sorted({width for row in rows for width in row.loads})
    counts = [_Column("grid barriers\na token", lambda row: _or_dash(row.barriers, str))] if widths else []
    counts += [
        _Column(f"{width}-bit\nloads", lambda row, w=width: _bytes(row.loads.get(w, 0)) if row.loads else "-")
        for width in widths
    ]
    if any(row.copied for row in rows):
        counts += [_Column("cp.async\nbytes", lambda row: _or_dash(row.copied, _bytes))]
    if any(row.prefetched for row in rows):
        counts += [_Column("prefetched\nbytes", lambda row: _or_dash(row.prefetched, _bytes))]
    counts += [_Column("activation\nloads", lambda row: _or_dash(row.activations, _bytes))] if widths else []
    archs = sorted({arch for row in rows for arch in row.facts}, key=lambda arch: int(arch.removeprefix("sm_")))
    facts = [_Column(f"{arch}\nregs/spill", lambda row, a=arch: _fact(row.facts.get(a))) for arch in archs]
    positions = sorted({timed.position for row in rows for timed in row.timed})
    times = [_timing(position)[:: 1 if position == positions[0] else 3] for position in positions]
    speed = _Column("tokens/s", lambda row: _or_dash(row.generation, lambda timed: f"{1e6 / timed.latency:.0f}"))
    predicted = [
        _Column("parent", lambda row: title(row.forecast.parent) if row.forecast else "-", "left"),
        _Column(f"predicted us\n{GPU}", lambda row: _or_dash(row.forecast, lambda f: f"{f.microseconds:,.0f}")),
        _Column("against\nparent", lambda row: _or_dash(row.forecast and row.forecast.effect, _percent)),
    ]
    if not any(row.forecast for row in rows):
        predicted = []
    return [group for group in (proof, counts, facts, *times, [speed] if positions else [], predicted) if group]


def _timing(position: int) -> list[_Column]:
    """The columns of one position: the latency first, the verdict last, the bandwidth between them."""

    def cell(show: Callable[[Timed], str | Text]) -> Callable[[Row], str | Text]:
        return lambda row: next((show(timed) for timed in row.timed if timed.position == position), "-")

    return [
        _Column(f"us a token\nat {position}", cell(_latency)),
        _Column("GB/s", cell(lambda timed: f"{timed.gbps:.0f}")),
        _Column("% of read\nceiling", cell(lambda timed: _or_dash(timed.ceiling, lambda share: f"{share:.1f}"))),
        _Column("against\nparent", cell(lambda timed: _verdict(timed.verdict)), "left"),
    ]


def _latency(timed: Timed) -> str:
    half = (timed.interval[1] - timed.interval[0]) / 2
    return f"{timed.latency:.1f} ±{100 * half / timed.latency:.2f} %"


def _verdict(word: str) -> Text:
    return Text(word, style="green" if word in GREEN else "yellow" if word in YELLOW else "red")


def _fact(fact: Fact | None) -> Text:
    if fact is None:
        return Text("-")
    return Text(f"{fact.registers}/{fact.spill_bytes}", style="red" if fact.spill_bytes else "")


def _or_dash(value: Any, show: Callable[[Any], str]) -> str:
    return "-" if value is None else show(value)


def _percent(change: float) -> str:
    return f"{100 * change:+.1f} %"


def _bytes(count: int) -> str:
    """`1.19 GB`, with decimal prefixes as bandwidths have."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B" if count else "0"

"""Table, reading, trace and figure of a timeline."""

import json
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.lazy import pandas
from common.model.stages import LAYER_STAGES, STAGES
from experiments.report.charts import COLORS, WIDTH, drawing
from experiments.run.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAITING = "#a9a9a9"

ORDINAL = (
    "A CPU has no clock of a GPU, so a timestamp is only an ordinal: it shows the order of the "
    "blocks in this schedule. It does not show how long a block works or waits, or what share of the step that is; "
    "that needs device=cuda."
)


def by_stage(found: Timeline) -> "pandas.DataFrame":
    """The table of a profile, a row per stage: `times` of a timeline in ns, `order` of one in ordinals."""
    return times(found) if found.timed else order(found)


def times(found: Timeline) -> "pandas.DataFrame":
    """Per stage, over all layers: a block's work and waiting (mean over blocks), work of the slowest, share of waiting.

    Waiting lasts from the end of a block's work until it passes the barrier after the stage, or has its part of a
    result that comes by value. A wait inside a stage (split_kv has a barrier there) counts as work.
    """
    blocks = found.sums
    rows = []
    for stage in (*(stage for stage in STAGES if stage in blocks.index), "all stages"):
        of = blocks.groupby("block").sum() if stage == "all stages" else blocks.loc[stage]
        work, wait = of["work"].mean(), of["wait"].mean()
        rows.append((stage, len(of), work, of["work"].max(), wait, 100 * wait / (work + wait) if work + wait else 0.0))
    heads = ("stage", "blocks", "work (ns)", "slowest block (ns)", "waiting (ns)", "waiting (%)")
    return pandas.DataFrame(rows, columns=heads)


def order(found: Timeline) -> "pandas.DataFrame":
    """Per stage, in the order in which the stages begin: number of layers, blocks that ran it, "synchronized after it".

    "yes": in every layer no block went on before the last block had ended the stage, as a barrier or a kernel's end
    ensures.
    """
    rows, whole = [], found.spans
    # Without a stamp behind a barrier a block goes on where it begins another stage, if ever.
    following = whole.groupby("block")["begin"].shift(-1).fillna(inf)
    whole = whole.assign(on=whole["passed"].where(whole["passed"] > whole["end"], following))
    for stage, spans in whole.groupby("stage", sort=False):  # as they begin
        layers = spans.groupby("layer")
        synchronized = (layers["on"].min() > layers["end"].max()).all()
        blocks = sorted(set(spans["block"]))
        rows.append((stage, len(layers), len(blocks), _ranges(blocks), "yes" if synchronized else "no"))
    return pandas.DataFrame(rows, columns=("stage", "layers", "blocks", "which blocks", "synchronized after it"))


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True))


def reading(found: Timeline) -> str:
    """Interpretation of the table in a few sentences; for ordinals, that they are not times."""
    if not found.timed:
        return ORDINAL
    table = times(found)
    stages, whole = table.iloc[:-1], table.iloc[-1]
    longest = stages.loc[stages["slowest block (ns)"].idxmax(), "stage"]
    waits = stages.loc[stages["waiting (ns)"].idxmax(), "stage"]
    steps = sorted(set(found.spans["begin"]))
    resolution = min((b - a for a, b in pairwise(steps)), default=0)
    return (
        f"A block waits {whole['waiting (%)']:.0f} % of the step, most of it after {waits}; the slowest blocks spend "
        f"most time in {longest}. The clock's observed resolution is {resolution} ns, and writing timestamps takes "
        "time: compare shares, and take latencies from a run without trace."
    )


def chrome_trace(found: Timeline, path: Path) -> None:
    """Write Chrome's trace format, which Perfetto opens: a row per block, a slice per stage and, if timed, per wait.

    The unit of the format is the microsecond; one ordinal becomes one microsecond.
    """
    scale = 1e-3 if found.timed else 1.0
    meta = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{found.title} [{found.unit}]"}}]
    for block in sorted(set(found.spans["block"])):
        meta.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": int(block), "args": {"name": f"block {block}"}})

    def slice_(name: str, kind: str, row: Any, start: int, stop: int) -> dict[str, Any]:
        about = {"ph": "X", "pid": 0, "tid": int(row.block), "ts": scale * int(start), "dur": scale * int(stop - start)}
        return {"name": name, "cat": kind, **about, "args": {"layer": int(row.layer)}}

    events = []
    for row in found.spans.itertuples():
        events.append(slice_(row.stage, "stage", row, row.begin, row.end))
        if found.timed and row.passed > row.end:
            events.append(slice_(f"wait after {row.stage}", "wait", row, row.end, row.passed))
    path.write_text(json.dumps({"traceEvents": meta + events, "displayTimeUnit": "ns"}), encoding="utf-8")


def draw(found: Timeline, path: Path) -> None:
    """Write an SVG: the middle layer, a row per block."""
    svg = drawing("timeline", (1.4 * WIDTH, 4), lambda figure: _draw_layer(figure.subplots(), found))
    path.write_text(svg, encoding="utf-8")


def _draw_layer(axes: "Axes", found: Timeline) -> None:
    spans = found.spans
    layer = int(spans["layer"].max()) // 2
    shown = spans[(spans["layer"] == layer) & spans["stage"].isin(LAYER_STAGES)]

    def bars(name: str, color: str, begin: str, end: str, rows: "pandas.DataFrame") -> None:
        axes.broken_barh([], (0, 1), color=color, label=name)
        for block, own in rows.groupby("block"):
            spans = zip(own[begin] - shown["begin"].min(), (own[end] - own[begin]).clip(lower=0), strict=True)
            axes.broken_barh(list(spans), (block - 0.4, 0.8), color=color, rasterized=True)

    if found.timed:
        bars("waiting", WAITING, "end", "passed", shown)
    for number, (stage, rows) in enumerate(shown.groupby("stage", sort=False)):
        bars(stage, COLORS[number % len(COLORS)], "begin", "end", rows)
    axes.set(title=f"{found.title}: layer {layer}", xlabel=found.unit, ylabel="block")
    axes.locator_params(axis="y", integer=True)
    axes.invert_yaxis()
    axes.margins(x=0.01)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

"""Figure of a timeline: the stages of each block during one layer, and where the blocks wait."""

from pathlib import Path
from typing import TYPE_CHECKING

from common.model.stages import STAGES
from experiments.run.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAITING = "#d9d9d9"


def draw(found: Timeline, path: Path) -> None:
    """Write an SVG: the middle layer, a row per block; if timed, also each block's share of waiting by stage."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7 if found.timed else 4), layout="constrained")
    FigureCanvasSVG(figure)
    if found.timed:
        above, below = figure.subplots(2, 1, height_ratios=(3, 2))
        _shares(below, found)
    else:
        above = figure.subplots()
    _layer(above, found)
    with rc_context({"svg.hashsalt": "megakernel-lab"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _layer(axes: "Axes", found: Timeline) -> None:
    from matplotlib import colormaps

    spans = found.spans
    layer = int(spans["layer"].max()) // 2
    shown = spans[(spans["layer"] == layer) & ~spans["stage"].isin(("embed", "final_norm", "lm_head", "argmax"))]
    start = shown["begin"].min()
    if found.timed:
        axes.broken_barh([], (0, 1), color=WAITING, label="waiting")
        for block, rows in shown.groupby("block"):
            waits = [(row.end - start, row.passed - row.end) for row in rows.itertuples()]
            axes.broken_barh(waits, (block - 0.4, 0.8), color=WAITING, rasterized=True)
    for number, (stage, rows) in enumerate(shown.groupby("stage", sort=False)):
        color = colormaps["tab10"](number % 10)
        axes.broken_barh([], (0, 1), color=color, label=stage)
        for row in rows.itertuples():
            bar = (row.begin - start, max(row.end - row.begin, 0))
            axes.broken_barh([bar], (row.block - 0.4, 0.8), color=color, rasterized=True)
    axes.set(title=f"{found.title}: layer {layer}", xlabel=found.unit, ylabel="block")
    axes.locator_params(axis="y", integer=True)
    axes.invert_yaxis()
    axes.margins(x=0.01)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _shares(axes: "Axes", found: Timeline) -> None:
    spans = found.spans.assign(
        wait=found.spans["passed"] - found.spans["end"], whole=found.spans["passed"] - found.spans["begin"]
    )
    sums = spans.groupby(["stage", "block"])[["wait", "whole"]].sum()
    share = (100 * sums["wait"] / sums["whole"].where(sums["whole"] > 0)).unstack("block")
    share = share.reindex([stage for stage in STAGES if stage in share.index])
    image = axes.imshow(share.to_numpy(dtype=float), aspect="auto", cmap="magma_r", vmin=0, vmax=100)
    axes.set_yticks(range(len(share)), share.index)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="block", title="share of waiting, all layers (%)")
    axes.figure.colorbar(image, ax=axes, pad=0.01)

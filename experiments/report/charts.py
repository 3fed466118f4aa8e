"""Bars and curves as SVG that comes out the same, byte for byte, from the same figures."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#5b5f97", "#8d6a9f", "#2e4057", "#00798c")
INK = "#333333"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
}
Values = Sequence[float | None]


def svg(name: str, draw: Callable[["Axes"], None], rows: float) -> str:
    """What `draw` draws, tall enough for `rows` bars. `name` keeps the ids of several drawings on one page apart."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE | {"svg.hashsalt": f"megakernel-lab {name}"}):
        canvas = Figure(figsize=(8, 1.5 + 0.3 * rows), layout="constrained")
        draw(canvas.add_subplot())
        out = io.StringIO()
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def bars(
    axes: "Axes", labels: Sequence[str], groups: Mapping[str, Values], marks: Mapping[str, Values], unit: str
) -> None:
    """Side by side for each label a bar per group, and a diamond per mark; missing values are left out."""
    height = 0.8 / len(groups)
    for number, (title, values) in enumerate(groups.items()):
        at = [row + (number - (len(groups) - 1) / 2) * height for row in range(len(labels))]
        axes.barh(at, [value or 0 for value in values], height, color=COLORS[number], label=title)
    for number, (title, values) in enumerate(marks.items(), start=len(groups)):
        points = [(value, row) for row, value in enumerate(values) if value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), "D", color=COLORS[number], markersize=5, label=title)
    axes.set_yticks(range(len(labels)), labels)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=unit, ylim=(len(labels) - 0.4, -0.6))
    axes.grid(False, axis="y")
    if len(groups) + len(marks) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)


def intervals(axes: "Axes", labels: Sequence[str], effects: Sequence[tuple[float, float, float]], unit: str) -> None:
    """A bar per label with its interval: (low, value, high)."""
    spread = [[value - low for low, value, _ in effects], [high - value for _, value, high in effects]]
    axes.barh(labels, [value for _, value, _ in effects], xerr=spread, color=COLORS[0], ecolor=INK, capsize=3)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=unit)
    axes.grid(False, axis="y")
    axes.invert_yaxis()


def curves(axes: "Axes", found: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
    """A curve per name, over a logarithmic x that has room for 0, from y = 0 on."""
    for number, (name, points) in enumerate(found.items()):
        color, style = COLORS[number % len(COLORS)], "-" if number < len(COLORS) else "--"
        axes.plot(*zip(*points, strict=True), style, marker="o", markersize=3, color=color, label=name)
    axes.set_xscale("symlog", linthresh=1)
    axes.set(xlabel=x, ylabel=y)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)

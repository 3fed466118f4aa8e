"""Charts as SVG for light and dark pages: the same figures give the same bytes."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Each has a contrast of at least 3 to 1 with a white and with a dark page.
COLORS = ("#3b7fc4", "#d1495b", "#4f9464", "#b97d10", "#8579c9", "#b0608f", "#6d8299", "#2a8f8f")
INK, GRID = "#333333", "#e4e4e4"  # become the page's own color of text, see `_in_any_light`
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
} | dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
WIDTH = 6.6  # inches: at 11 points still to be read on a phone, which shows it half as wide
LIGHTS = (
    "<style>svg.chart{color:#24292f}@media (prefers-color-scheme:dark){svg.chart{color:#e6edf3}}"
    "svg.chart text{fill:currentColor}</style>"
)
Text = tuple[float, int, str]  # its left end, row, and words


def svg(name: str, draw: Callable[["Axes"], None], rows: float) -> str:
    """Figure by `draw`, tall enough for `rows` bars. `name` keeps the ids of several drawings on one page apart."""
    return drawing(name, (WIDTH, 1.3 + 0.27 * rows), lambda figure: draw(figure.add_subplot()))


def drawing(name: str, inches: tuple[float, float], draw: Callable[["Figure"], None]) -> str:
    """Figure by `draw` in the style of the lab, as SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE | {"svg.hashsalt": f"megakernel-lab {name}"}):
        canvas = Figure(figsize=inches, layout="constrained")
        draw(canvas)
        out = io.StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _in_any_light("\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n")


def _in_any_light(drawing: str) -> str:
    """Without a background, in the color of text of a light or a dark page."""
    drawing = drawing.replace(f"stroke: {GRID}", "stroke: currentColor; stroke-opacity: 0.18")
    drawing = drawing.replace(INK, "currentColor").replace("<svg ", '<svg class="chart" ', 1)
    head, mark, rest = drawing.partition(" <defs>")
    return f"{head} {LIGHTS}\n{mark}{rest}"


def bars(
    axes: "Axes",
    labels: Sequence[str],
    values: Sequence[float | None],
    unit: str,
    spans: Sequence[tuple[float, float] | None] = (),
    texts: Sequence[Text] = (),
) -> None:
    """A bar for each label that has a value. spans: their intervals. texts: stand beside what they describe."""
    known = [(row, value) for row, value in enumerate(values) if value is not None]
    ends = [(value - span[0], span[1] - value) for row, value in known if spans and (span := spans[row])]
    rows, lengths = zip(*known, strict=True)
    spread = list(zip(*ends, strict=True)) or None
    axes.barh(rows, lengths, 0.6, xerr=spread, color=COLORS[0], ecolor=INK, capsize=3)
    for end, row, text in texts:
        axes.annotate(text, (end, row), (7, 0), textcoords="offset points", va="center", fontsize=10)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlabel=unit, ylim=(len(labels) - 0.4, -0.6))
    axes.grid(False, axis="y")


def curves(axes: "Axes", found: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
    """A curve per name, over a logarithmic x that has room for 0, from y = 0 on."""
    for number, (name, points) in enumerate(found.items()):
        color, style = COLORS[number % len(COLORS)], "-" if number < len(COLORS) else "--"
        axes.plot(*zip(*points, strict=True), style, marker="o", markersize=3, color=color, label=name)
    axes.set_xscale("symlog", linthresh=1)
    axes.set(xlabel=x, ylabel=y)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)

"""Figures of the measured table: its steps, and its times over the position."""

from collections.abc import Callable
from functools import partial

from experiments.report import charts
from experiments.report.evidence import Evidence
from experiments.report.measured import FIRST, OPEN, WHOLE, Measured, measured


def all_figures(evidence: Evidence) -> dict[str, str]:
    """{name: SVG} of all figures that there are records for."""
    now = measured(evidence)
    drawn = {name: draw(now) for name, draw in FIGURES.items()}
    return {name: svg for name, svg in drawn.items() if svg}


def steps(now: Measured) -> str | None:
    """A bar for each row that has a time, where that are at least two; the others say that they have none."""
    us = [row.us.get(FIRST) if row else None for row in now.rows.values()]
    if sum(each is not None for each in us) < 2 or not now.place:
        return None
    texts = [
        (each or 0, at, f"{each:,.0f}{row.marks.get(FIRST, '')}" if row and each else OPEN.strip("*"))
        for at, (each, row) in enumerate(zip(us, now.rows.values(), strict=True))
    ]
    unit = f"us a token at position {FIRST}, {now.place.gpu}, {now.place.day}{_legend(now)}"
    draw = partial(charts.bars, labels=[*now.rows], values=us, unit=unit, texts=texts)
    return charts.svg("steps", draw, 1.2 * len(us))


def positions(now: Measured) -> str | None:
    """A curve for each row with times at two positions or more."""
    curves = {
        name + WHOLE * (WHOLE in row.marks.values()): sorted(row.us.items())
        for name, row in now.rows.items()
        if row and len(row.us) > 1
    }
    if not curves or not now.place:
        return None
    x, y = f"position{_legend(now)}", f"us a token, {now.place.gpu}, {now.place.day}"
    return charts.svg("positions", partial(charts.curves, found=curves, x=x, y=y), 9)


def _legend(now: Measured) -> str:
    """Line below an axis that says which times are means."""
    marked = any(WHOLE in row.marks.values() for row in now.rows.values() if row)
    return f"\n{WHOLE} mean over {now.tokens} tokens of a generation from there" if marked else ""


FIGURES: dict[str, Callable[[Measured], str | None]] = {"steps": steps, "positions": positions}

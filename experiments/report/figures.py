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
    marks = [row.marks.get(FIRST, "") if row else "" for row in now.rows.values()]
    texts = [(each or 0, at, f"{each:,.0f}{marks[at]}" if each else OPEN.strip("*")) for at, each in enumerate(us)]
    unit = f"us a token at position {FIRST}, {now.place.gpu}, {now.place.day}" + (
        f"; {WHOLE} mean over {now.tokens} tokens" if WHOLE in marks else ""
    )
    draw = partial(charts.bars, labels=[*now.rows], groups={"": us}, unit=unit, texts=texts)
    return charts.svg("steps", draw, 1.2 * len(us))


def positions(now: Measured) -> str | None:
    """A curve for each row with times at two positions or more."""
    curves = {name: sorted(row.us.items()) for name, row in now.rows.items() if row and len(row.us) > 1}
    if not curves or not now.place:
        return None
    draw = partial(charts.curves, found=curves, x="position", y=f"us a token, {now.place.gpu}, {now.place.day}")
    return charts.svg("positions", draw, 9)


FIGURES: dict[str, Callable[[Measured], str | None]] = {"steps": steps, "positions": positions}

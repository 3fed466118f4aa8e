"""Figures that the records allow, and the contents of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.report import charts, ladder
from experiments.report.evidence import Evidence, Record, totals
from experiments.report.timed import OPEN
from experiments.report.variants import COUNTS
from experiments.tables.row import plausible

VISIBLE = 0.5  # percent: a smaller change cannot be seen as a bar
SHOWN = ("grid barriers", "load instructions", "activation bytes")


@dataclass(frozen=True)
class Figure:
    """An SVG; basis: measured or counted; records: ids of its sources."""

    name: str
    caption: str
    basis: str
    svg: str
    records: Sequence[str]


def all_figures(evidence: Evidence) -> list[Figure]:
    """All figures that there are records for."""
    made = (figure(evidence) for figure in (ablation, counts, positions, scaling, roofline, ratios, steps))
    return [figure for figure in made if figure]


def ablation(evidence: Evidence) -> Figure | None:
    """The measured effect of every variant on a token's time, with its interval."""
    row = evidence.result("ablation")
    known: list[tuple[str, Record, list[float]]] = []  # label, record, effect with its interval
    if row and row["basis"] == "measured":
        first = row["table"][0]["position"]  # effects at different positions are not drawn as one
        for line in row["table"]:
            if line["effect %"] is not None and line["position"] == first:
                effect = [line[each] for each in ("effect %", "low %", "high %")]
                known.append((evidence.plain(line["variant"]), row, effect))
    else:
        for name in evidence.names:
            for run in evidence.timed(name):
                if (found := plausible(run)) and (pair := found[0].get("comparison")):
                    effect = [100 * pair[each] for each in ("effect", "low", "high")]
                    known.append((f"{name} ({run['device'].get('gpu')})", run, effect))
    if not known:
        return None
    labels, rows, effects = zip(*known, strict=True)
    groups, spans = {"": [value for value, _, _ in effects]}, [(low, high) for _, low, high in effects]
    caption = "Effect of each variant on the time of a token, with intervals"
    unit = "time of a token against the parent (%)"
    return _bars("ablation", caption, rows, labels, groups, unit, basis="measured", spans=spans)


def counts(evidence: Evidence) -> Figure | None:
    """Changes of the counts of one token by variant; variants that change none of them are left out."""
    changes: dict[str, list[float]] = {}
    used: list[Record] = []
    keys = [COUNTS[title] for title in SHOWN]
    for name in evidence.names:
        row, base = evidence.counted(name)
        if row and base and row["stack"] != base["stack"]:
            after, before = totals(row["counts"]), totals(base["counts"])
            found = [100 * (after.get(key, 0) / before[key] - 1) if before.get(key) else 0.0 for key in keys]
            if max(map(abs, found)) >= VISIBLE:
                changes[name] = found
                used += [row, base]
    if not changes:
        return None
    groups = dict(zip(SHOWN, zip(*changes.values(), strict=True), strict=True))
    unit = "change against the parent (%), counts: not time"
    models = ", ".join(sorted({row["model"]["name"] for row in used}))
    caption = f"What each variant changes in the counts of one token of {models}"
    return _bars("counts", caption, used, list(changes), groups, unit, 1.6, "counted")


def positions(evidence: Evidence) -> Figure | None:
    """Latency over position: of the experiment `positions` where it measured, else of timed runs."""
    row = evidence.result("positions")
    timed = {f"{name} ({run['device'].get('gpu')})": run for name in evidence.names for run in evidence.timed(name)}
    rows = list(timed.values())
    curves = {
        name: [(each["position"], 1e6 * each["seconds"]["median"]) for each in plausible(run)]
        for name, run in timed.items()
    }
    if row and row["basis"] == "measured":
        rows = [row]
        columns = [name for name in row["columns"] if name.endswith(" us")]
        curves = {
            name: [(line["position"], line[name]) for line in row["table"] if line[name] is not None]
            for name in columns
        }
    if not curves:
        return None
    draw = partial(charts.curves, found=curves, x="position", y="us a token (measured)")
    return _figure("positions", "Time of a token over the position", rows, draw, 9, "measured")


def scaling(evidence: Evidence) -> Figure | None:
    """Share of the read floor over the bytes of a token, for each system and GPU."""
    row = evidence.result("scaling")
    if not row:
        return None
    end, found = " % of the read floor", dict[str, list[tuple[float, float]]]()
    for line in row["table"]:
        for column in row["columns"]:
            if column.endswith(end) and line[column] is not None:
                name = f"{column.removesuffix(end)}, {line['gpu']}"
                found.setdefault(name, []).append((line["MB a token"], line[column]))
    draw = partial(charts.curves, found=found, x="MB a token", y=f"% of the read floor ({row['basis']})")
    return _figure("scaling", "Share of the read floor as the weights grow", [row], draw, 9)


def roofline(evidence: Evidence) -> Figure | None:
    """Every variant below the roofs of memory and of arithmetic; without a GPU the bytes of each stage."""
    row = evidence.result("roofline")
    if not row:
        return None
    by_kind = {
        kind: [line for line in row["table"] if line["kind"] == kind] for kind in ("probe", "roof", "variant", "stage")
    }
    if row["basis"] != "measured":
        sizes, labels = ([line[name] for line in by_kind["stage"]] for name in ("MB", "what"))
        unit = "MB a token: bytes, not time"
        return _bars("stage_bytes", "Bytes that each stage must read", [row], labels, {"": sizes}, unit)
    draw = partial(
        charts.roofline,
        slopes={line["what"]: line["GB/s"] for line in by_kind["probe"] if line["what"].startswith("read")},
        flat={line["what"]: line["GFLOP/s"] for line in by_kind["roof"]},
        points={evidence.plain(line["what"]): (line["FLOP/byte"], line["GFLOP/s"]) for line in by_kind["variant"]},
    )
    return _figure("roofline", "Every variant below the roofs of memory and of arithmetic", [row], draw, 14)


def ratios(evidence: Evidence) -> Figure | None:
    """Tokens a second for each ratio of producer and consumer warps, beside the published sweep."""
    row = evidence.result("ratios")
    if not row:
        return None
    names = ("producers:consumers", "average tok/s", "published average")
    labels, average, published = ([line[name] for line in row["table"]] for name in names)
    groups, marks = {f"{row['basis']} here": average}, {"published, RTX 3090, another kernel": published}
    unit = "tokens a second, average over positions"
    return _bars("ratios", "Producer and consumer warps", [row], labels, groups, unit, 1.5, marks=marks)


def steps(evidence: Evidence) -> Figure | None:
    """The steps to the fast kernel that were measured, where that are at least two."""
    times, labels = ladder.step_times(evidence), [*ladder.steps(evidence)]
    if len(times.us) < 2:
        return None
    us = [times.us.get(label) for label in labels]
    return _bars(
        "ladder",
        "From the baseline to the fast kernel, step by step",
        times.records,
        labels,
        {"": us},
        unit=f"us a token at position {ladder.POSITION}, measured",
        height=1.2,
        basis="measured",
        texts=[(each or 0, row, f"{each:,.0f}" if each else OPEN) for row, each in enumerate(us)],
        floor=times.floor,
    )


def _bars(
    name: str,
    caption: str,
    rows: Sequence[Record],
    labels: Sequence[str],
    groups: Mapping[str, charts.Values],
    unit: str,
    height: float = 1.0,
    basis: str = "",
    **more: Any,
) -> Figure:
    """A figure of `charts.bars`, `height` bars tall for each label."""
    draw = partial(charts.bars, labels=labels, groups=groups, unit=unit, **more)
    return _figure(name, caption, rows, draw, height * len(labels), basis)


def _figure(
    name: str, caption: str, rows: Sequence[Record], draw: Callable[..., None], bars: float, basis: str = ""
) -> Figure:
    """`draw` as a figure as tall as so many bars; basis: of the first of `rows`, unless it is given."""
    records = tuple(dict.fromkeys(row["id"] for row in rows))
    return Figure(name, caption, basis or rows[0]["basis"], charts.svg(name, draw, bars), records)

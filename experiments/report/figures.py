"""Figures that the records allow, and what each of them shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.prediction.published import GAINS, rate_change
from experiments.report import charts, forecast, ladder
from experiments.report.evidence import Evidence, Record, plausible, totals
from experiments.report.forecast import most_on, predicted
from experiments.tables.row import NOT_MODELLED

SHOWN = {"grid_barriers": "grid barriers", "load_instructions": "load instructions", "activations": "activation bytes"}

VISIBLE = 0.5  # percent: a smaller change cannot be seen as a bar


@dataclass(frozen=True)
class Figure:
    """An SVG; basis: measured, counted or predicted; records: ids of what it shows."""

    name: str
    caption: str
    basis: str
    svg: str
    records: tuple[str, ...]


def all_figures(evidence: Evidence) -> list[Figure]:
    """All figures that there are records for."""
    made = (figure(evidence) for figure in (ablation, counts, positions, roofline, ratios, prediction, planned, steps))
    return [figure for figure in made if figure]


def ablation(evidence: Evidence) -> Figure | None:
    """The effect of every variant on a token's time: measured with its interval, or predicted."""
    row = evidence.result("ablation")
    if row and row["basis"] == "measured":
        first = row["table"][0]["position"]  # effects at different positions are not drawn as one
        lines = [line for line in row["table"] if line["effect %"] is not None and line["position"] == first]
        effects = [(line["low %"], line["effect %"], line["high %"]) for line in lines]
        return _effects([evidence.plain(line["variant"]) for line in lines], effects, [row])
    timed = [(name, run) for name in evidence.names for run in evidence.timed(name)]
    pairs: list[tuple[str, Record, Any]] = [
        (f"{name} ({run['device'].get('gpu')})", run, found[0].get("comparison"))
        for name, run in timed
        if (found := plausible(run))
    ]
    if pairs := [pair for pair in pairs if pair[2]]:
        effects = [(100 * pair["low"], 100 * pair["effect"], 100 * pair["high"]) for _, _, pair in pairs]
        return _effects([label for label, _, _ in pairs], effects, [run for _, run, _ in pairs])
    return _expected(evidence, row) if row else None


def _expected(evidence: Evidence, row: Record) -> Figure | None:
    """Predicted rates beside published ones, the largest published gain first; without rows that have neither."""
    known = {name: predicted(name, evidence) for name in evidence.names}
    effects = {name: rate_change(found.effect) for name, found in known.items() if found and found.effect}
    shown = [name for name in evidence.names if name in effects or (known[name] and name in GAINS)]
    if not effects:
        return None
    shown.sort(key=lambda name: (name in evidence.catalog.stacks, -GAINS.get(name, -1000), -effects.get(name, 0)))
    gpu = most_on(evidence)
    others = {name: f"{name}, {found.gpu}" for name, found in known.items() if found and found.gpu != gpu}
    draw = partial(
        charts.claims,
        labels=[others.get(name, name) for name in shown],
        expected=[effects.get(name) for name in shown],
        published=[GAINS.get(name) for name in shown],
        missing=NOT_MODELLED,
        titles=(
            "predicted from counts, not measured",
            "published",
            f"change of tokens/s by the variant (%), {gpu}",
        ),
    )
    return _figure("ablation", "Published and predicted effect of each variant on the rate", row, draw, len(shown))


def _effects(labels: Sequence[str], effects: Sequence[tuple[float, float, float]], rows: Sequence[Record]) -> Figure:
    draw = partial(charts.intervals, labels=labels, effects=effects, unit="time of a token against the parent (%)")
    svg = charts.svg("ablation", draw, len(labels))
    return Figure(
        "ablation", "Effect of each variant on the time of a token, with intervals", "measured", svg, _ids(rows)
    )


def counts(evidence: Evidence) -> Figure | None:
    """Changes of the counts of one token by variant; variants that change none of them are left out."""
    labels: list[str] = []
    used: list[Record] = []
    changes: dict[str, list[float]] = {title: [] for title in SHOWN.values()}
    for name in evidence.names:
        row, base = evidence.counted(name)
        if row and base and row["stack"] != base["stack"]:
            after, before = totals(row["counts"]), totals(base["counts"])
            found = [100 * (after.get(key, 0) / before[key] - 1) if before.get(key) else 0.0 for key in SHOWN]
            if max(map(abs, found)) < VISIBLE:
                continue
            for title, value in zip(SHOWN.values(), found, strict=True):
                changes[title].append(value)
            labels.append(name)
            used += [row, base]
    if not labels:
        return None
    draw = partial(
        charts.bars, labels=labels, groups=changes, marks={}, unit="change against the parent (%), counts: not time"
    )
    models = ", ".join(sorted({row["model"]["name"] for row in used}))
    svg = charts.svg("counts", draw, 1.6 * len(labels))
    return Figure(
        "counts", f"What each variant changes in the counts of one token of {models}", "counted", svg, _ids(used)
    )


def positions(evidence: Evidence) -> Figure | None:
    """Latency over position: of the experiment `positions` where it measured, else of timed runs, else predicted."""
    row = evidence.result("positions")
    timed = [(name, run) for name in evidence.names for run in evidence.timed(name)]
    if timed and not (row and row["basis"] == "measured"):
        found = {
            f"{name} ({run['device'].get('gpu')})": [
                (each["position"], 1e6 * each["seconds"]["median"]) for each in plausible(run)
            ]
            for name, run in timed
        }
        rows, basis = [run for _, run in timed], "measured"
    elif row:
        columns = [name for name in row["columns"] if name.endswith(" us")]
        found = {name: _points(row, "position", name) for name in columns}
        rows, basis = [row], row["basis"]
    else:
        return None
    draw = partial(charts.curves, found=found, x="position", y=f"us a token ({basis})")
    return Figure("positions", "Time of a token over the position", basis, charts.svg("positions", draw, 9), _ids(rows))


def roofline(evidence: Evidence) -> Figure | None:
    """Every variant below the roofs of memory and of arithmetic; without a GPU the bytes of each stage."""
    row = evidence.result("roofline")
    if not row:
        return None
    if row["basis"] != "measured":
        lines = [line for line in row["table"] if line["kind"] == "stage"]
        sizes = {"MB": [line["MB"] for line in lines]}
        labels, unit = [line["what"] for line in lines], "MB a token: bytes, not time"
        draw = partial(charts.bars, labels=labels, groups=sizes, marks={}, unit=unit)
        return _figure("stage_bytes", "Bytes that each stage must read", row, draw, len(lines))
    by_kind = {kind: [line for line in row["table"] if line["kind"] == kind] for kind in ("probe", "roof", "variant")}
    draw = partial(
        charts.roofline,
        slopes={line["what"]: line["GB/s"] for line in by_kind["probe"] if line["what"].startswith("read")},
        flat={line["what"]: line["GFLOP/s"] for line in by_kind["roof"]},
        points={evidence.plain(line["what"]): (line["FLOP/byte"], line["GFLOP/s"]) for line in by_kind["variant"]},
    )
    return _figure("roofline", "Every variant below the roofs of memory and of arithmetic", row, draw, 14)


def ratios(evidence: Evidence) -> Figure | None:
    """Tokens a second for each ratio of producer and consumer warps, beside the published sweep."""
    row = evidence.result("ratios")
    if not row:
        return None
    average, published = ([line[name] for line in row["table"]] for name in ("average tok/s", "published average"))
    draw = partial(
        charts.bars,
        labels=[line["producers:consumers"] for line in row["table"]],
        groups={f"{row['basis']} here": average},
        marks={"published, RTX 3090, another kernel": published},
        unit="tokens a second, average over positions",
    )
    return _figure("ratios", "Producer and consumer warps", row, draw, 1.5 * len(average))


def prediction(evidence: Evidence) -> Figure | None:
    """Predicted beside published rates."""
    row = evidence.result("predict")
    if not row:
        return None
    lines = [line for line in row["table"] if line["published tok/s"] is not None]
    draw = partial(
        charts.bars,
        labels=[f"{line['gpu']}: {line['stack']} at {line['position']}" for line in lines],
        groups={"predicted": [line["predicted tok/s"] for line in lines]},
        marks={"published": [line["published tok/s"] for line in lines]},
        unit="tokens a second",
    )
    return _figure("prediction", "Predicted and published rates", row, draw, 1.3 * len(lines)) if lines else None


def planned(evidence: Evidence) -> Figure | None:
    """The steps of conf/design/ on the first GPU that they are meant for."""
    row, found = evidence.result("predict"), forecast.planned(evidence)
    if not row or not found:
        return None
    gpu, times = next(iter(found.items()))
    spans = [(line["low us"], line["predicted us"], line["high us"]) for line in times.values()]
    unit = f"us a token at position 1, {gpu}, each step on top of those above it"
    draw = partial(charts.ladder, labels=list(times), spans=spans, measured=[None] * len(times), floor=None, unit=unit)
    return _figure("planned", "Prediction of a design, of which nothing is compiled", row, draw, len(times))


def steps(evidence: Evidence) -> Figure | None:
    """The steps of what was built after the design, on the GPU that most were measured on, else on the first."""
    climb = max(ladder.climbs(evidence), key=lambda climb: len(climb.measured))
    if not climb.predicted:
        return None
    labels = [rung.label for rung in ladder.rungs(evidence)]
    lines = [climb.predicted.get(label) for label in labels]
    draw = partial(
        charts.ladder,
        labels=labels,
        spans=[(line["low us"], line["predicted us"], line["high us"]) if line else None for line in lines],
        measured=[climb.measured.get(label) for label in labels],
        floor=ladder.read_floor(evidence),
        unit=f"us a token at position {ladder.POSITION}, {climb.gpu}",
    )
    basis = "measured" if climb.measured else "predicted"
    svg = charts.svg("ladder", draw, 1.2 * len(labels))
    return Figure("ladder", "From a published stack to the fast kernel, step by step", basis, svg, tuple(climb.records))


def _figure(name: str, caption: str, row: Record, draw: Callable[..., None], rows: float) -> Figure:
    return Figure(name, caption, row["basis"], charts.svg(name, draw, rows), (row["id"],))


def _points(row: Record, x: str, y: str) -> list[tuple[float, float]]:
    return [(line[x], line[y]) for line in row["table"] if line[y] is not None]


def _ids(rows: Sequence[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["id"] for row in rows))

"""Figures that the records allow, and what each of them shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.prediction.published import GAINS, rate_change
from experiments.report import charts, ladder, predicted
from experiments.report.evidence import Evidence, Record, plausible, totals
from experiments.tables.row import NOT_MODELLED

COUNTS = {"grid_barriers": "grid barriers", "load_instructions": "load instructions", "activations": "activation bytes"}
VISIBLE = 0.5  # percent: a smaller change cannot be seen as a bar
PREDICTED = "predicted, not measured"


@dataclass(frozen=True)
class Figure:
    """An SVG; basis: measured, counted or predicted; records: ids of what it shows."""

    name: str
    caption: str
    basis: str
    svg: str
    records: Sequence[str]


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
    known: list[tuple[str, Record, Mapping[str, Any]]] = []
    for name in evidence.names:
        for run in evidence.timed(name):
            if (found := plausible(run)) and (pair := found[0].get("comparison")):
                known.append((f"{name} ({run['device'].get('gpu')})", run, pair))
    if known:
        labels, runs, pairs = zip(*known, strict=True)
        return _effects(labels, [(100 * each["low"], 100 * each["effect"], 100 * each["high"]) for each in pairs], runs)
    return _expected(evidence, row) if row else None


def _effects(labels: Sequence[str], effects: Sequence[tuple[float, float, float]], rows: Sequence[Record]) -> Figure:
    """Measured effects: (low, value, high)."""
    draw = partial(
        charts.bars,
        labels=labels,
        groups={"": [value for _, value, _ in effects]},
        spans=[(low, high) for low, _, high in effects],
        unit="time of a token against the parent (%)",
    )
    caption = "Effect of each variant on the time of a token, with intervals"
    return _figure("ablation", caption, rows, draw, len(labels), "measured")


def _expected(evidence: Evidence, row: Record) -> Figure | None:
    """Predicted rates beside published ones, the largest published gain first; without rows that have neither."""
    known = {name: predicted.predicted(name, evidence) for name in evidence.names}
    effects = {name: rate_change(found.effect) for name, found in known.items() if found and found.effect}
    shown = [name for name in evidence.names if name in effects or (known[name] and name in GAINS)]
    if not effects:
        return None
    shown.sort(key=lambda name: (name in evidence.catalog.stacks, -GAINS.get(name, -1000), -effects.get(name, 0)))
    gpu, texts = predicted.most_on(evidence), []
    for number, name in enumerate(shown):
        value = f"{effects[name]:+.1f}" if name in effects else NOT_MODELLED
        claim = f", published {GAINS[name]:+g}" if name in GAINS else ""
        texts.append((max(effects.get(name, 0.0), GAINS.get(name, 0.0), 0.0), number, value + claim))
    others = {name: f"{name}, {found.gpu}" for name, found in known.items() if found and found.gpu != gpu}
    draw = partial(
        charts.bars,
        labels=[others.get(name, name) for name in shown],
        groups={"predicted from counts, not measured": [effects.get(name) for name in shown]},
        marks={"published": [GAINS.get(name) for name in shown]},
        unit=f"change of tokens/s by the variant (%), {gpu}",
        texts=texts,
    )
    return _figure("ablation", "Published and predicted effect of each variant on the rate", [row], draw, len(shown))


def counts(evidence: Evidence) -> Figure | None:
    """Changes of the counts of one token by variant; variants that change none of them are left out."""
    changes: dict[str, list[float]] = {}
    used: list[Record] = []
    for name in evidence.names:
        row, base = evidence.counted(name)
        if row and base and row["stack"] != base["stack"]:
            after, before = totals(row["counts"]), totals(base["counts"])
            found = [100 * (after.get(key, 0) / before[key] - 1) if before.get(key) else 0.0 for key in COUNTS]
            if max(map(abs, found)) >= VISIBLE:
                changes[name] = found
                used += [row, base]
    if not changes:
        return None
    draw = partial(
        charts.bars,
        labels=list(changes),
        groups=dict(zip(COUNTS.values(), zip(*changes.values(), strict=True), strict=True)),
        unit="change against the parent (%), counts: not time",
    )
    models = ", ".join(sorted({row["model"]["name"] for row in used}))
    caption = f"What each variant changes in the counts of one token of {models}"
    return _figure("counts", caption, used, draw, 1.6 * len(changes), "counted")


def positions(evidence: Evidence) -> Figure | None:
    """Latency over position: of the experiment `positions` where it measured, else of timed runs, else predicted."""
    row = evidence.result("positions")
    timed = {f"{name} ({run['device'].get('gpu')})": run for name in evidence.names for run in evidence.timed(name)}
    rows, basis = list(timed.values()), "measured"
    curves = {
        name: [(each["position"], 1e6 * each["seconds"]["median"]) for each in plausible(run)]
        for name, run in timed.items()
    }
    if row and (row["basis"] == "measured" or not timed):
        rows, basis = [row], row["basis"]
        columns = [name for name in row["columns"] if name.endswith(" us")]
        curves = {
            name: [(line["position"], line[name]) for line in row["table"] if line[name] is not None]
            for name in columns
        }
    if not curves:
        return None
    draw = partial(charts.curves, found=curves, x="position", y=f"us a token ({basis})")
    return _figure("positions", "Time of a token over the position", rows, draw, 9, basis)


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
        draw = partial(charts.bars, labels=labels, groups={"": sizes}, unit="MB a token: bytes, not time")
        return _figure("stage_bytes", "Bytes that each stage must read", [row], draw, len(labels))
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
    draw = partial(
        charts.bars,
        labels=labels,
        groups={f"{row['basis']} here": average},
        marks={"published, RTX 3090, another kernel": published},
        unit="tokens a second, average over positions",
    )
    return _figure("ratios", "Producer and consumer warps", [row], draw, 1.5 * len(average))


def prediction(evidence: Evidence) -> Figure | None:
    """Predicted beside published rates."""
    row = evidence.result("predict")
    lines = [line for line in row["table"] if line["published tok/s"] is not None] if row else []
    if not row or not lines:
        return None
    draw = partial(
        charts.bars,
        labels=[f"{line['gpu']}: {line['stack']} at {line['position']}" for line in lines],
        groups={"predicted": [line["predicted tok/s"] for line in lines]},
        marks={"published": [line["published tok/s"] for line in lines]},
        unit="tokens a second",
    )
    return _figure("prediction", "Predicted and published rates", [row], draw, 1.3 * len(lines))


def planned(evidence: Evidence) -> Figure | None:
    """The steps of conf/design/ on the first GPU that they are meant for."""
    row, found = evidence.result("predict"), predicted.planned(evidence)
    if not row or not found:
        return None
    gpu, times = next(iter(found.items()))
    unit = f"us a token at position 1, {gpu}, each step on top of those above it"
    draw = _ladder(list(times), list(times.values()), unit)
    return _figure("planned", "Prediction of a design, of which nothing is compiled", [row], draw, len(times))


def steps(evidence: Evidence) -> Figure | None:
    """The steps of what was built after the design, on the GPU that most were measured on, else on the first."""
    times = max(ladder.step_times(evidence), key=lambda times: len(times.measured))
    if not times.predicted:
        return None
    labels = [step.label for step in ladder.steps(evidence)]
    unit = f"us a token at position {ladder.POSITION}, {times.gpu}"
    measured = {"measured": [times.measured.get(label) for label in labels]}
    draw = _ladder(labels, list(map(times.predicted.get, labels)), unit, measured, ladder.read_floor(evidence))
    basis = "measured" if times.measured else "predicted"
    caption = "From a published stack to the fast kernel, step by step"
    return Figure("ladder", caption, basis, charts.svg("ladder", draw, 1.2 * len(labels)), times.records)


def _ladder(
    labels: Sequence[str],
    lines: Sequence[Mapping[str, Any] | None],
    unit: str,
    measured: Mapping[str, charts.Values] = charts.NONE,
    floor: float | None = None,
) -> Callable[..., None]:
    """Bars of lines of `experiment=predict` with their intervals; a label without a line says so."""
    spans = [predicted.times_of(line) if line else None for line in lines]
    return partial(
        charts.bars,
        labels=labels,
        groups={PREDICTED: [span and span[0] for span in spans]},
        marks=measured,
        spans=[span and span[1:] for span in spans],
        texts=[
            (span[2], row, f"{span[0]:,.0f}") if span else (0, row, "not predicted yet")
            for row, span in enumerate(spans)
        ],
        floor=floor,
        unit=unit,
    )


def _figure(
    name: str, caption: str, rows: Sequence[Record], draw: Callable[..., None], bars: float, basis: str = ""
) -> Figure:
    """`draw` as a figure as tall as so many bars; basis: of the first of `rows`, unless it is given."""
    records = tuple(dict.fromkeys(row["id"] for row in rows))
    return Figure(name, caption, basis or rows[0]["basis"], charts.svg(name, draw, bars), records)

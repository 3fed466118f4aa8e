"""Which figures the records allow, and what each shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from experiments.report import charts
from experiments.report.evidence import Evidence, Record, totals

SHOWN = {"grid_barriers": "grid barriers", "load_instructions": "load instructions", "activations": "activation bytes"}


@dataclass(frozen=True)
class Figure:
    """An SVG; basis: measured, counted or predicted; records: ids of what it shows."""

    name: str
    caption: str
    basis: str
    svg: str
    records: tuple[str, ...]


def all_figures(evidence: Evidence) -> list[Figure]:
    """Those there are records for."""
    made = (figure(evidence) for figure in (ablation, counts, positions, roofline, ratios, prediction))
    return [figure for figure in made if figure]


def ablation(evidence: Evidence) -> Figure | None:
    """The effect of every variant on a token's time: measured with its interval, or predicted."""
    row = evidence.outcome("ablation")
    if row and row["basis"] == "measured":
        lines = [line for line in row["table"] if line["effect %"] is not None]
        effects = [(line["low %"], line["effect %"], line["high %"]) for line in lines]
        return _effects([line["variant"] for line in lines], effects, [row])
    timed = [(name, run) for name in evidence.names for run in evidence.timed(name)]
    pairs = [
        (f"{name} ({run['device'].get('gpu')})", run, run["latencies"][0].get("comparison")) for name, run in timed
    ]
    if pairs := [pair for pair in pairs if pair[2]]:
        effects = [tuple(100 * pair[2][key] for key in ("low", "effect", "high")) for pair in pairs]
        return _effects([label for label, _, _ in pairs], effects, [run for _, run, _ in pairs])
    if not row:
        return None
    lines = [line for line in row["table"] if line["predicted effect %"] is not None]
    groups = {"predicted effect": [line["predicted effect %"] for line in lines]}
    draw = partial(
        charts.bars,
        labels=[line["variant"] for line in lines],
        groups=groups,
        marks={},
        unit="predicted change of a token's time against the parent (%): not measured",
    )
    return _figure("ablation", "Predicted effect of each variant on the time of a token", row, draw, len(lines))


def _effects(labels: Sequence[str], effects: Sequence[tuple[float, ...]], rows: Sequence[Record]) -> Figure:
    draw = partial(charts.intervals, labels=labels, effects=effects, unit="time of a token against the parent (%)")
    svg = charts.svg("ablation", draw, len(labels))
    return Figure(
        "ablation", "Effect of each variant on the time of a token, with intervals", "measured", svg, _ids(rows)
    )


def counts(evidence: Evidence) -> Figure | None:
    """What every variant changes in the counts of one token."""
    labels, used = [], []
    changes: dict[str, list[float]] = {title: [] for title in SHOWN.values()}
    for name in evidence.names:
        row, base = evidence.counted(name)
        if base and row["stack"] != base["stack"]:
            after, before = totals(row["counts"]), totals(base["counts"])
            for key, title in SHOWN.items():
                changes[title].append(100 * (after.get(key, 0) / before[key] - 1) if before.get(key) else 0.0)
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
    """Latency over position: of timed runs, else of the experiment `positions`."""
    timed = [(name, run) for name in evidence.names for run in evidence.timed(name)]
    if timed:
        found = {
            f"{name} ({run['device'].get('gpu')})": [
                (each["position"], 1e6 * each["seconds"]["median"]) for each in run["latencies"]
            ]
            for name, run in timed
        }
        rows, basis = [run for _, run in timed], "measured"
    else:
        row = evidence.outcome("positions")
        if not row:
            return None
        columns = [name for name in row["columns"] if name.endswith(" us")]
        found = {name: _points(row, "position", name) for name in columns}
        rows, basis = [row], row["basis"]
    draw = partial(charts.curves, found=found, x="position", y=f"us a token ({basis})")
    return Figure("positions", "Time of a token over the position", basis, charts.svg("positions", draw, 9), _ids(rows))


def roofline(evidence: Evidence) -> Figure | None:
    """GB/s of every variant below what reading reaches; without a GPU the bytes of each stage."""
    row = evidence.outcome("roofline")
    if not row:
        return None
    if row["basis"] == "measured":
        lines = [line for line in row["table"] if line["kind"] in ("probe", "variant")]
        values, unit, caption = [line["GB/s"] for line in lines], "GB/s", "Every variant below the read ceiling"
    else:
        lines = [line for line in row["table"] if line["kind"] == "stage"]
        values, unit, caption = (
            [line["MB"] for line in lines],
            "MB a token: bytes, not time",
            "Bytes each stage must read",
        )
    labels = [f"{line['kind']}: {line['what']}" for line in lines]
    draw = partial(charts.bars, labels=labels, groups={unit: values}, marks={}, unit=unit)
    return _figure("roofline", caption, row, draw, len(lines))


def ratios(evidence: Evidence) -> Figure | None:
    """Tokens a second for each ratio of producer and consumer warps, beside the published sweep."""
    row = evidence.outcome("ratios")
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
    row = evidence.outcome("predict")
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


def _figure(name: str, caption: str, row: Record, draw: Callable[..., None], rows: float) -> Figure:
    return Figure(name, caption, row["basis"], charts.svg(name, draw, rows), (row["id"],))


def _points(row: Record, x: str, y: str) -> list[tuple[float, float]]:
    return [(line[x], line[y]) for line in row["table"] if line[y] is not None]


def _ids(rows: Sequence[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["id"] for row in rows))

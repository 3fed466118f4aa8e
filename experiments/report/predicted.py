"""Time in the report's tables: measured on a GPU where a record has it, else predicted and called so."""

from collections.abc import Mapping
from typing import Any

from experiments.prediction.published import GAINS, errors, gain, meets, rate_change
from experiments.report.evidence import Evidence, Record, model_of
from experiments.tables.row import IMPLAUSIBLE, Forecast, plausible, with_interval

OPEN = "open: needs a GPU"
Line = Mapping[str, Any]  # of `experiment=predict`


def predicted(name: str, evidence: Evidence) -> Forecast | None:
    """Prediction of a variant or named stack by `experiment=ablation`; None where that measured, or has no such row."""
    row = evidence.result("ablation")
    if not row or row["basis"] != "predicted":
        return None
    line: Record = next((line for line in row["table"] if evidence.plain(line.get("variant")) == name), {})
    columns = (column for column in row["columns"] if column.startswith("predicted us, "))  # one for each GPU
    column = next((column for column in columns if line.get(column) is not None), None)
    if not column:
        return None
    effect = line.get("predicted effect %")
    return Forecast(
        parent=evidence.stack_of(name)[1],
        microseconds=line[column],
        interval=None if line.get("low us") is None else (line["low us"], line["high us"]),
        effect=None if effect is None else effect / 100,
        effect_interval=None if line.get("low %") is None else (line["low %"] / 100, line["high %"] / 100),
        note=line.get("model") or "",
        gpu=column.partition(", ")[2],
        model=str(model_of(row)),
        position=(row.get("options") or {}).get("position", 1),
    )


def forecasts(evidence: Evidence) -> dict[str, Forecast]:
    """All that `predicted` knows, by name."""
    return {name: found for name in evidence.names if (found := predicted(name, evidence))}


def lines(evidence: Evidence) -> dict[tuple[str, str, int], Line]:
    """Lines of the newest `experiment=predict`, by the GPU's key, the stack, and the position."""
    row = evidence.result("predict")
    return {(line["gpu"], line["stack"], line["position"]): line for line in row["table"]} if row else {}


def time(line: Line | None) -> str:
    """`1,766 [1,640, 1,980]`: the microseconds of a line of `experiment=predict`."""
    return with_interval(line["predicted us"], (line["low us"], line["high us"])) if line else "-"


def time_of(name: str, evidence: Evidence) -> str:
    """Measured effects of all GPUs, else the prediction, with the published effect that it misses, else OPEN."""
    if measured := "; ".join(map(effect, evidence.timed(name))):
        return measured
    found = predicted(name, evidence)
    if not found:
        return OPEN
    elsewhere = f" on {found.gpu}" if found.gpu != most_on(evidence) else ""
    missed = f"; published {rate_change(GAINS[name] / 100):+.1f} %" if _misses(name, found) else ""
    return f"{text(found)}{elsewhere}{missed}"


def text(found: Forecast) -> str:
    """`predicted -3.2 % [-3.5, -2.9]` against the parent, or `predicted 1,766 [1,640, 1,980] us` without one."""
    if found.note:
        return found.note
    return f"predicted {found.change or f'{found.time} us'}"


def _misses(name: str, found: Forecast) -> bool:
    """True if the published gain of the variant `name` lies outside the interval."""
    interval = gain(found)
    return name in GAINS and interval is not None and not meets(name, interval)


def most_on(evidence: Evidence) -> str | None:
    """The GPU of the predictions, but for stacks that need a newer one; None without predictions."""
    return next((found.gpu for name in evidence.names if (found := predicted(name, evidence))), None)


def about_predictions(evidence: Evidence) -> list[str]:
    """A paragraph on the meaning and the errors of predictions; none without predictions."""
    known = forecasts(evidence)
    if not known:
        return []
    found = next(iter(known.values()))
    about = (
        f"Predicted, not measured: a token of {found.model} on {found.gpu}, or on the GPU that is named, from counts."
    )
    if found.interval:
        about += " In brackets: from the least to the most that the ranges of the constants in conf/gpu/ allow."
    if any(_misses(name, each) for name, each in known.items()):
        about += " A published effect stands beside each prediction that does not meet it."
    return [" ".join([about, "The model is an estimate and no bound.", *model_error(evidence)])]


def model_error(evidence: Evidence) -> list[str]:
    """The sentence on the model's error by the newest records; none without predictions."""
    known = forecasts(evidence)
    gains = {name: interval for name in GAINS if name in known and (interval := gain(known[name]))}
    rates = evidence.result("predict")
    return errors(rates["table"] if rates else [], gains)


def effect(row: Record) -> str:
    """`H200, qwen3_0_6b: 500.0 us at 1: FASTER -3.2 % [-3.5, -2.9]` for every position of a run on a GPU."""
    parts = []
    for found in plausible(row):
        pair = found.get("comparison")
        low, middle, high = (100 * pair[each] for each in ("low", "effect", "high")) if pair else (0, 0, 0)
        spread = f" {middle:+.1f} % [{low:+.1f}, {high:+.1f}]" if pair else ""
        median = 1e6 * found["seconds"]["median"]
        parts.append(f"{median:.1f} us at {found['position']}: {found['verdict'] or '-'}{spread}")
    return f"{row['device'].get('gpu', 'GPU')}, {row['model']['name']}: {', '.join(parts) or IMPLAUSIBLE}"

"""Time in the report's tables: measured on a GPU where a record has it, else predicted and called so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.prediction import designs
from experiments.prediction.published import GAINS, errors, meets, rate_change
from experiments.report.evidence import Evidence, Record, model_of, plausible
from experiments.tables.row import IMPLAUSIBLE, NOT_MODELLED

OPEN = "open: needs a GPU"
Interval = tuple[float, float]  # low, high


@dataclass(frozen=True)
class Predicted:
    """Prediction of one stack by `experiment=ablation`.

    interval: of the microseconds; None in records that have none. effect, effect_interval: percent against the parent;
    None for a stack that is its own parent, or where it is not modelled.
    """

    gpu: str
    microseconds: float
    effect: float | None
    modelled: bool
    interval: Interval | None = None
    effect_interval: Interval | None = None

    def __str__(self) -> str:
        if not self.modelled:
            return NOT_MODELLED
        return f"predicted {self.time} us" if self.effect is None else f"predicted {self.change}"

    @property
    def time(self) -> str:
        """`1,766 [1,640, 1,980]`, in microseconds."""
        return interval(self.microseconds, *self.interval) if self.interval else f"{self.microseconds:,.0f}"

    @property
    def change(self) -> str:
        """`-3.2 % [-3.5, -2.9]`; the effect is not None."""
        low_high = self.effect_interval and f" [{self.effect_interval[0]:+.1f}, {self.effect_interval[1]:+.1f}]"
        return f"{self.effect:+.1f} %{low_high or ''}"

    @property
    def gain(self) -> Interval | None:
        """The effect's interval in percent of tokens a second; (0, 0) where it is not modelled."""
        low_high = self.effect_interval if self.modelled else (0.0, 0.0)
        return low_high and (rate_change(low_high[1]), rate_change(low_high[0]))

    def misses(self, name: str) -> bool:
        """True if the published gain of the variant `name` lies outside the interval."""
        return name in GAINS and self.gain is not None and not meets(name, self.gain)


def interval(value: float, low: float, high: float) -> str:
    """`1,766 [1,640, 1,980]`."""
    return f"{value:,.0f} [{low:,.0f}, {high:,.0f}]"


def times_of(line: Mapping[str, Any]) -> tuple[float, float, float]:
    """Predicted microseconds of a line of `experiment=predict`, with the ends of their interval."""
    return line["predicted us"], line["low us"], line["high us"]


def predicted(name: str, evidence: Evidence) -> Predicted | None:
    """Prediction of a variant or named stack; None where the experiment measured, or has no such row."""
    row = evidence.result("ablation")
    if not row or row["basis"] != "predicted":
        return None
    line: Record = next((line for line in row["table"] if evidence.plain(line.get("variant")) == name), {})
    columns = (column for column in row["columns"] if column.startswith("predicted us, "))  # one for each GPU
    column = next((column for column in columns if line.get(column) is not None), None)
    if not column:
        return None
    times, changes = (
        (line[low], line[high]) if line.get(low) is not None else None
        for low, high in (("low us", "high us"), ("low %", "high %"))
    )
    return Predicted(
        gpu=column.partition(", ")[2],
        microseconds=line[column],
        effect=line.get("predicted effect %"),
        modelled=line.get("model") != NOT_MODELLED,
        interval=times,
        effect_interval=changes,
    )


def planned(evidence: Evidence) -> dict[str, dict[str, Mapping[str, Any]]]:
    """By GPU and step: the lines of `experiment=predict` on the steps of conf/design/, each after the stack's own."""
    row = evidence.result("predict")
    lines = {(line["gpu"], line["stack"]): line for line in row["table"] if line["position"] == 1} if row else {}
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for design in designs.ladders():
        names = [design.stack, *(f"+ {step}" for step in design.steps)]
        for gpu in design.gpus:
            if all((gpu, name) in lines for name in names):
                found[gpu] = {name: lines[gpu, name] for name in names}
    return found


def time_of(name: str, evidence: Evidence) -> str:
    """Measured effects of all GPUs, else the prediction, with the published effect that it misses, else OPEN."""
    if measured := "; ".join(map(effect, evidence.timed(name))):
        return measured
    found = predicted(name, evidence)
    if not found:
        return OPEN
    elsewhere = f" on {found.gpu}" if found.gpu != most_on(evidence) else ""
    missed = f"; published {rate_change(GAINS[name]):+.1f} %" if found.misses(name) else ""
    return f"{found}{elsewhere}{missed}"


def most_on(evidence: Evidence) -> str | None:
    """The GPU of the predictions, but for stacks that need a newer one; None without predictions."""
    return next((found.gpu for name in evidence.names if (found := predicted(name, evidence))), None)


def about_predictions(evidence: Evidence) -> list[str]:
    """A paragraph on what the predictions are and how far they are off; none without predictions."""
    row, known = evidence.result("ablation"), [predicted(name, evidence) for name in evidence.names]
    found = next(filter(None, known), None)
    if not row or not found:
        return []
    where = f"{found.gpu}, or on the GPU that is named"
    about = f"Predicted, not measured: a token of {model_of(row)} on {where}, from counts."
    if found.interval:
        about += " In brackets: from the least to the most that the ranges of the constants in conf/gpu/ allow."
    if any(each and each.misses(name) for name, each in zip(evidence.names, known, strict=True)):
        about += " A published effect stands beside each prediction that does not meet it."
    return [" ".join([about, "The model is an estimate and no bound.", *model_error(evidence)])]


def model_error(evidence: Evidence) -> list[str]:
    """The sentence on the model's error by the newest records; none without predictions."""
    known = {name: predicted(name, evidence) for name in GAINS}
    gains = {name: found.gain for name, found in known.items() if found and found.gain}
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

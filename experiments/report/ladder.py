"""Ladder: the steps of a stack that was built after a design, as they are counted, predicted and measured."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.model.shapes import Model
from common.stacks.catalog import BASELINE
from common.stacks.stack import prefixes, title
from experiments.prediction import designs, gpus
from experiments.prediction.designs import Ladder
from experiments.report import forecast
from experiments.report.evidence import Evidence, Record, model_of, plausible, question, totals
from experiments.report.table import Table
from experiments.report.variants import change

POSITION = 1
COMMAND = "python -m experiments experiment=predict results=experiments/results/host.jsonl"
SHOWN = {"grid barriers": "grid_barriers", "load instructions": "load_instructions", "activation bytes": "activations"}


@dataclass(frozen=True)
class Rung:
    """A stack of the ladder, whatever is known of it.

    label   `+ columns`; key: the name of the stack in `experiment=predict`
    owner   the name in the catalog that gives the knobs
    alone   whether it does not stand on the one above it
    """

    label: str
    key: str
    owner: str
    stack: tuple[str, ...]
    alone: bool = False


@dataclass(frozen=True)
class Climb:
    """Times of the steps on one GPU, whose name is in `gpu`.

    predicted  the line of `experiment=predict` by rung; measured: us a token; rungs without one are left out
    records    ids of those that they come from
    """

    gpu: str
    predicted: Mapping[str, Mapping[str, Any]]
    measured: Mapping[str, float]
    records: Sequence[str]


def design() -> Ladder:
    """The one design that has been built."""
    (found,) = designs.ladders()
    return found


def rungs(evidence: Evidence) -> list[Rung]:
    """The stack that the design begins with, then the baseline and each step of what was built on that."""
    began, built, catalog = design().stack, design().built, evidence.catalog
    found = [Rung(began, began, began, evidence.stack_of(began)[0], True), Rung(BASELINE, BASELINE, BASELINE, (), True)]
    whole, _ = evidence.stack_of(built)
    for stack in prefixes(whole, catalog):
        label = f"+ {title(stack[len(found[-1].stack) :])}"
        named = f" = {built}" if stack == whole and built in catalog.stacks else ""
        found.append(Rung(label + named, title(stack), built, stack))
    return found


def climbs(evidence: Evidence) -> list[Climb]:
    """One for each GPU of the design."""
    return [_climb(key, rungs(evidence), evidence) for key in design().gpus]


def table(evidence: Evidence) -> Table:
    """Counts of each rung, its predicted time on each GPU, and the measured one where there is one."""
    found, lines, records = climbs(evidence), [], []
    before: dict[str, int] = {}
    for rung in rungs(evidence):
        counted = evidence.counts_of(rung.owner, rung.stack)
        after = totals(counted["counts"]) if counted else {}
        line: dict[str, str] = {"step": rung.label}
        line |= {name: change(field, after, {} if rung.alone else before) for name, field in SHOWN.items()}
        for climb in found:
            line |= _times(climb, rung)
        busy = found[0].predicted.get(rung.label)
        lines.append(line | {f"memory busy, {found[0].gpu}": f"{busy['memory busy %']:.0f} %" if busy else "-"})
        before = after
        records += [counted["id"]] if counted else []
    note = (
        f"Counted on the host device; times predicted, not measured, at position {POSITION}, in brackets as far as the "
        "ranges of the constants in conf/gpu/ allow. The first row is another stack; from the baseline on, each step "
        "stands on those above it."
    )
    told = unpredicted(found[0], evidence)
    notes = [note, *([f"Not predicted yet: {', '.join(told)}. `{COMMAND}` does it."] if told else [])]
    records += [record for climb in found for record in climb.records]
    return Table(list(lines[0]), lines, notes, list(dict.fromkeys(records)))


def summary(evidence: Evidence) -> Table:
    """A row for each step from the baseline to the fastest stack, on the first GPU of the design."""
    climb, floor = climbs(evidence)[0], read_floor(evidence)
    basis = "measured" if climb.measured else "predicted"
    lines = []
    for rung in rungs(evidence)[1:]:
        name, counted = rung.stack[-1] if rung.stack else BASELINE, evidence.counts_of(rung.owner, rung.stack)
        line = climb.predicted.get(rung.label)
        us = climb.measured.get(rung.label) if climb.measured else line and line["predicted us"]
        lines.append(
            {
                "step": f"{'+ ' if rung.stack else ''}[{name}](variants/{name}.cu)",
                "idea": re.split("[:;,.] ", evidence.catalog.variants[name].idea)[0],
                "grid barriers a token": totals(counted["counts"]).get("grid_barriers", 0) if counted else None,
                f"{basis} us a token": f"{us:,.0f}" if us else "-",
                "tok/s": f"{1e6 / us:,.0f}" if us else "-",
                "of the read floor": f"{100 * floor / us:.0f} %" if us and floor else "-",
            }
        )
    note = (
        f"Qwen3-0.6B, batch 1, position {POSITION}, {climb.gpu}; each step on top of those above it. Barriers are "
        f"counted, times are {basis}. Read floor: all that a token reads, once: {floor or 0:,.0f} us."
    )
    notes = [" ".join([note, *([] if climb.measured else forecast.model_error(evidence))])]
    return Table(list(lines[0]), lines, notes, climb.records)


def read_floor(evidence: Evidence) -> float | None:
    """Microseconds of a token that only reads, at the read rate of the design's first GPU; None without counts."""
    row, _ = evidence.counted(BASELINE)
    return (
        1e6 * Model(**row["model"]).bytes_per_token(POSITION) / gpus.read(design().gpus[0]).read_rate if row else None
    )


def goals(evidence: Evidence) -> Table:
    """Predicted times of the rungs that were built, at the positions of the design's goals, and these."""
    row, key, aims = evidence.result("predict"), design().gpus[0], design().goals
    names = {position: f"predicted us, position {position}" for position in aims}
    known = {(line["stack"], line["position"]): line for line in (row["table"] if row else []) if line["gpu"] == key}
    lines = []
    for rung in rungs(evidence)[2:]:
        found = {names[position]: known.get((rung.key, position)) for position in aims}
        told = {
            name: forecast.interval(line["predicted us"], line["low us"], line["high us"]) if line else "-"
            for name, line in found.items()
        }
        lines.append({"step": rung.label, **told})
    lines.append({"step": "goal", **{names[position]: f"{1e6 / rate:,.0f}" for position, rate in aims.items()}})
    rates = ", ".join(f"{rate:,.0f} at {position}" for position, rate in aims.items())
    note = f"Predicted, not measured, on {gpus.read(key).name}. The goals in tokens a second: {rates}."
    return Table(list(lines[0]), lines, [note], [row["id"]] if row else [])


def unpredicted(climb: Climb, evidence: Evidence) -> list[str]:
    """Labels of the rungs that no prediction is known of."""
    return [rung.label for rung in rungs(evidence) if rung.label not in climb.predicted]


def _times(climb: Climb, rung: Rung) -> dict[str, str]:
    line, us = climb.predicted.get(rung.label), climb.measured.get(rung.label)
    told = forecast.interval(line["predicted us"], line["low us"], line["high us"]) if line else "-"
    times = {f"predicted us, {climb.gpu}": told}
    return times | ({f"measured us, {climb.gpu}": f"{us:,.1f}" if us else "-"} if climb.measured else {})


def _climb(key: str, steps: Sequence[Rung], evidence: Evidence) -> Climb:
    row, gpu = evidence.result("predict"), gpus.read(key).name
    at = [line for line in row["table"] if (line["gpu"], line["position"]) == (key, POSITION)] if row else []
    lines = {line["stack"]: line for line in at}
    predicted = {rung.label: lines[rung.key] for rung in steps if rung.key in lines}
    timed = _timed(gpu, steps, evidence, row)
    used = [each["id"] for each in (row, *timed.values()) if each]
    return Climb(gpu, predicted, {label: _us(run) for label, run in timed.items()}, used)


def _timed(gpu: str, steps: Sequence[Rung], evidence: Evidence, predict: Record | None) -> Mapping[str, Record]:
    """The newest run of each rung on the GPU, by label: of runs that were asked alike, those of most rungs."""
    asked: dict[str, dict[str, Record]] = {}
    for rung in steps:
        for run in evidence.of_stack(rung.owner, rung.stack, "latencies"):
            alike = predict is None or model_of(run) == model_of(predict)
            if alike and gpu in (run["device"].get("gpu") or "") and _us(run):
                asked.setdefault(question(run), {})[rung.label] = run
    return max(asked.values(), key=len, default={})


def _us(run: Record) -> float:
    """Microseconds of a token at POSITION; 0 where that was not measured."""
    return next((1e6 * found["seconds"]["median"] for found in plausible(run) if found["position"] == POSITION), 0.0)

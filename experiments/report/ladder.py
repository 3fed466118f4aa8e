"""Ladder: the steps of a stack, as they are counted, predicted and measured."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.display.table import Table
from common.model.shapes import Model
from common.stacks.catalog import BASELINE
from common.stacks.stack import prefixes, title
from experiments.prediction import designs, gpus
from experiments.prediction.designs import Ladder
from experiments.report.evidence import Evidence, Record, comparable, model_of, totals
from experiments.report.predicted import Line, lines, model_error, time
from experiments.report.variants import COUNTS, change
from experiments.tables.row import plausible

POSITION = 1
COMMAND = "python -m experiments experiment=predict results=experiments/results/host.jsonl"
SHOWN = ("grid barriers", "load instructions", "activation bytes")


@dataclass(frozen=True)
class Step:
    """A stack of the ladder.

    label   `+ columns`; key: the name of the stack in `experiment=predict`
    owner   the name in the catalog that gives the knobs
    alone   True if it does not stand on the step above it
    """

    label: str
    key: str
    owner: str
    stack: tuple[str, ...]
    alone: bool = False


@dataclass(frozen=True)
class StepTimes:
    """Times of the steps on the GPU named `gpu`.

    predicted  the line of `experiment=predict` by label; measured: us a token; steps without one are left out
    records    of these times
    floor      us of a token that only reads, at the GPU's read rate; None without counts
    """

    gpu: str
    predicted: Mapping[str, Line]
    measured: Mapping[str, float]
    records: Sequence[Record]
    floor: float | None


def design() -> Ladder:
    """The one ladder of conf/design/."""
    (found,) = designs.ladders()
    return found


def steps(evidence: Evidence) -> list[Step]:
    """The stack that the ladder is compared with, then the baseline and each step on that."""
    began, built, catalog = design().stack, design().built, evidence.catalog
    found = [Step(began, began, began, evidence.stack_of(began)[0], True), Step(BASELINE, BASELINE, BASELINE, (), True)]
    whole, _ = evidence.stack_of(built)
    for stack in prefixes(whole, catalog):
        label = f"+ {title(stack[len(found[-1].stack) :])}"
        named = f" = {built}" if stack == whole and built in catalog.stacks else ""
        found.append(Step(label + named, title(stack), built, stack))
    return found


def step_times(evidence: Evidence) -> list[StepTimes]:
    """Times on each GPU of the design."""
    return [_times_on(key, evidence) for key in design().gpus]


def table(evidence: Evidence) -> Table:
    """Counts of each step, its predicted time on each GPU, and the measured one where there is one."""
    times, rows = step_times(evidence), []
    before: dict[str, int] = {}
    for step in steps(evidence):
        counted = evidence.counts_of(step.owner, step.stack)
        after = totals(counted["counts"]) if counted else {}
        line: dict[str, str] = {"step": step.label}
        line |= {title: change(COUNTS[title], after, {} if step.alone else before) for title in SHOWN}
        for on in times:
            us = on.measured.get(step.label)
            line[f"predicted us, {on.gpu}"] = time(on.predicted.get(step.label))
            line |= {f"measured us, {on.gpu}": f"{us:,.1f}" if us else "-"} if on.measured else {}
        busy = times[0].predicted.get(step.label)
        rows.append(line | {f"memory busy, {times[0].gpu}": f"{busy['memory busy %']:.0f} %" if busy else "-"})
        before = after
    note = (
        f"Counted on a CPU; times predicted, not measured, at position {POSITION}, in brackets as far as the "
        "ranges of the constants in conf/gpu/ allow. The first row is another stack; from the baseline on, each step "
        "stands on those above it."
    )
    missing = ", ".join(step.label for step in steps(evidence) if step.label not in times[0].predicted)
    return Table.of(rows, notes=[note, *([f"Not predicted yet: {missing}. `{COMMAND}` does it."] if missing else [])])


def summary(evidence: Evidence) -> Table:
    """A row for each step from the baseline to the fastest stack, on the first GPU of the design."""
    times = step_times(evidence)[0]
    floor = times.floor
    basis = "measured" if times.measured else "predicted"
    rows = []
    for step in steps(evidence)[1:]:
        name, counted = step.stack[-1] if step.stack else BASELINE, evidence.counts_of(step.owner, step.stack)
        line = times.predicted.get(step.label)
        us = times.measured.get(step.label) if times.measured else line and line["predicted us"]
        rows.append(
            {
                "step": f"{'+ ' if step.stack else ''}[{name}](variants/{name}.cu)",
                "idea": re.split("[:;,.] ", evidence.catalog.variants[name].idea)[0],
                "grid barriers a token": totals(counted["counts"]).get("grid_barriers", 0) if counted else None,
                f"{basis} us a token": f"{us:,.0f}" if us else "-",
                "tok/s": f"{1e6 / us:,.0f}" if us else "-",
                "of the read floor": f"{100 * floor / us:.0f} %" if us and floor else "-",
            }
        )
    rows += [] if times.measured else [*_below_bf16(evidence), *_with_drafts(evidence)]
    note = (
        f"Qwen3-0.6B, batch 1, position {POSITION}, {times.gpu}; each step on top of those above it. Barriers are "
        f"counted, times are {basis}. Read floor: all that a token reads, once: {floor or 0:,.0f} us; less in fewer "
        "bits, and no bound where L2 keeps weights from one token to the next."
    )
    return Table.of(rows, notes=[" ".join([note, *([] if times.measured else model_error(evidence))])])


def _below_bf16(evidence: Evidence) -> list[dict[str, Any]]:
    """The whole stack with weights of fewer bits, of the newest `experiment=formats`."""
    found = evidence.result("formats")
    rows = found["table"] if found and found["options"]["position"] == POSITION else ()
    own = [row for row in rows if (row["gpu"], row["variant"]) == (design().gpus[0], design().built)]
    return [
        {
            "step": f"{row['variant']}, [{row['format'].partition('/')[0]}](docs/formats.md)",
            "idea": f"{row['MB a token']:,.0f} MB of weights a token in place of {own[0]['MB a token']:,.0f}",
            "predicted us a token": f"{row['predicted us']:,.0f}",
            "tok/s": f"{row['tok/s']:,.0f}",
            "of the read floor": f"{100 * row['read floor us'] / row['predicted us']:.0f} %",
        }
        for row in own[1:]
    ]


def _with_drafts(evidence: Evidence) -> list[dict[str, Any]]:
    """The stack that verifies drafts, with none and with all of them accepted."""
    name = design().drafts
    line = lines(evidence).get((design().gpus[0], name, POSITION))
    tokens = evidence.catalog.stacks[name].knobs["tokens"]
    return [
        {
            "step": f"[{name}](docs/drafts.md), {drafts} of {tokens - 1} drafts right",
            "idea": f"{tokens} tokens a step",
            "predicted us a token": f"{line['predicted us'] / (drafts + 1):,.0f}",
            "tok/s": f"{1e6 * (drafts + 1) / line['predicted us']:,.0f}",
        }
        for drafts in (0, tokens - 1)
        if line
    ]


def goals(evidence: Evidence) -> Table:
    """Predicted times of the steps at the positions of the goals, and the goals."""
    known, key, aims = lines(evidence), design().gpus[0], design().goals
    heads = {position: f"predicted us, position {position}" for position in aims}
    rows = []
    for step in steps(evidence)[2:]:
        times = {head: time(known.get((key, step.key, position))) for position, head in heads.items()}
        rows.append({"step": step.label, **times})
    rows.append({"step": "goal", **{heads[position]: f"{1e6 / rate:,.0f}" for position, rate in aims.items()}})
    rates = ", ".join(f"{rate:,.0f} at {position}" for position, rate in aims.items())
    note = f"Predicted, not measured, on {gpus.read(key).name}. The goals in tokens a second: {rates}."
    return Table.of(rows, notes=[note])


def _times_on(key: str, evidence: Evidence) -> StepTimes:
    row, gpu, known = evidence.result("predict"), gpus.read(key), lines(evidence)
    places = {step.label: (key, step.key, POSITION) for step in steps(evidence)}
    predicted = {label: known[place] for label, place in places.items() if place in known}
    timed = _timed(gpu.name, evidence, row)
    used = [each for each in (row, *timed.values()) if each]
    counted, _ = evidence.counted(BASELINE)
    floor = 1e6 * Model(**counted["model"]).bytes_per_token(POSITION) / gpu.read_rate if counted else None
    return StepTimes(gpu.name, predicted, {label: _microseconds(run) for label, run in timed.items()}, used, floor)


def _timed(gpu: str, evidence: Evidence, predict: Record | None) -> Mapping[str, Record]:
    """The newest comparable run of each step on the GPU, by label."""

    def fits(run: Record) -> bool:
        alike = predict is None or model_of(run) == model_of(predict)
        return alike and gpu in (run["device"].get("gpu") or "") and _microseconds(run) > 0

    runs = {step.label: evidence.of_stack(step.owner, step.stack, "latencies") for step in steps(evidence)}
    return comparable({label: [*filter(fits, own)] for label, own in runs.items()})


def _microseconds(run: Record) -> float:
    """Microseconds of a token at POSITION; 0 where that was not measured."""
    return next((1e6 * found["seconds"]["median"] for found in plausible(run) if found["position"] == POSITION), 0.0)

"""Ladder: the steps to the fast kernel, as they are counted and measured."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.display.table import Table
from common.model.shapes import Model
from common.stacks.catalog import BASELINE
from common.stacks.stack import prefixes, title
from experiments.report.evidence import Evidence, Record, comparable, model_of, totals
from experiments.report.timed import OPEN
from experiments.run import gpus
from experiments.tables.row import plausible

BUILT, GPU, MODEL, POSITION = "streaming", "h100", "qwen3_0_6b", 1


@dataclass(frozen=True)
class StepTimes:
    """Measured times of the steps on GPU.

    us       of a token, by label; steps without one are left out
    records  of these times
    floor    us of a token that only reads, at the GPU's read rate; None without counts
    """

    us: Mapping[str, float]
    records: Sequence[Record]
    floor: float | None


def steps(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """{label: stack} of the baseline and each step on that: `+ columns`."""
    found: dict[str, tuple[str, ...]] = {BASELINE: ()}
    whole, _ = evidence.stack_of(BUILT)
    for stack in prefixes(whole, evidence.catalog):
        below = [*found.values()][-1]
        found[f"+ {title(stack[len(below) :])}" + (f" = {BUILT}" if stack == whole else "")] = stack
    return found


def step_times(evidence: Evidence) -> StepTimes:
    """The newest comparable runs of the steps on GPU at POSITION."""
    gpu = gpus.read(GPU)

    def fits(run: Record) -> bool:
        return gpu.name in (run["device"].get("gpu") or "") and model_of(run) == MODEL and _microseconds(run) > 0

    runs = {label: evidence.of_stack(_owner(stack), stack, "latencies") for label, stack in steps(evidence).items()}
    timed = comparable({label: [*filter(fits, own)] for label, own in runs.items()})
    counted, _ = evidence.counted(BASELINE)
    floor = Model(**counted["model"]).bytes_per_token(POSITION) / gpu.costs.read_gbps / 1e3 if counted else None
    return StepTimes({label: _microseconds(run) for label, run in timed.items()}, [*timed.values()], floor)


def summary(evidence: Evidence) -> Table:
    """A row for each step from the baseline to the fastest stack: its idea, its barriers, its measured time."""
    times, rows = step_times(evidence), []
    for label, stack in steps(evidence).items():
        name, counted, us = stack[-1] if stack else BASELINE, _counted(stack, evidence), times.us.get(label)
        rows.append(
            {
                "step": f"{'+ ' if stack else ''}[{name}](variants/{name}.cu)",
                "idea": re.split("[:;,.] ", evidence.catalog.variants[name].idea)[0],
                "grid barriers a token": counted.get("grid_barriers", 0) if counted else None,
                "measured us a token": f"{us:,.0f}" if us else OPEN,
                "of the read rate": f"{100 * times.floor / us:.0f} %" if us and times.floor else "-",
            }
        )
    note = (
        f"Qwen3-0.6B, batch 1, position {POSITION}, {gpus.read(GPU).name}; each step on top of those above it. "
        f"Barriers are counted. A token that only reads takes {times.floor or 0:,.0f} us there."
    )
    return Table.of(rows, notes=[note])


def _owner(stack: Sequence[str]) -> str:
    """The name in the catalog that gives the knobs."""
    return BUILT if stack else BASELINE


def _counted(stack: Sequence[str], evidence: Evidence) -> Mapping[str, int]:
    found = evidence.counts_of(_owner(stack), stack)
    return totals(found["counts"]) if found else {}


def _microseconds(run: Record) -> float:
    """Microseconds of a token at POSITION; 0 where that was not measured."""
    return next((1e6 * found["seconds"]["median"] for found in plausible(run) if found["position"] == POSITION), 0.0)

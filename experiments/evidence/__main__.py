"""Evidence for the report, as much as a budget holds: `python -m experiments.evidence --help`."""

import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from pathlib import Path

from omegaconf import DictConfig

from common.config import budget
from common.config.cli import INTERRUPTED, UNFINISHED, composed, run_task
from common.config.device_choice import choose_device
from common.config.run_config import Seed
from common.config.section import Section
from common.config.texts import override_text
from common.config.unused import UNUSED
from common.display.table import aligned
from common.errors import LabError
from common.record.provenance import provenance
from common.record.record import StepRecord
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.evidence.execute import GRACE, Ended, execute
from experiments.evidence.plan import CUT, DONE, FAILED, ROWS, START, STEP, Plan, Step, read_steps
from experiments.tables.commands import relative

OWN = ("results", "budget_s", "row_s", "device", "seed", "variant", "stack", "experiment")  # never in `args`
END = 2.0  # seconds of the budget that this command needs itself after a step
Execute = Callable[[Sequence[str], float], Ended]


@dataclass(frozen=True)
class Settings:
    """The keys of conf/evidence.yaml, which explains them."""

    budget_s: float | None
    results: Path
    device: Section
    seed: Seed
    only: tuple[str, ...]
    args: tuple[str, ...]
    plan: bool
    debug: bool
    cuda: Section
    cpu: Section


class Evidence:
    """One call of the command, on one device. execute: runs a step.

    Raises LabError for a bad value of a setting, `args` that no run takes, and a store that cannot be written.
    """

    def __init__(self, settings: Settings, execute: Execute) -> None:
        self.settings, self.execute, self.store = settings, execute, Store(settings.results)
        self.deadline = inf if settings.budget_s is None else budget.clock() + settings.budget_s
        self.choice = choice = choose_device(settings.device.text("name"))
        self.device, self.gpu = choice.name, choice.why if choice.name == "cuda" else "cpu"
        self.store.check()
        for arg in settings.args:
            if (key := arg.partition("=")[0].lstrip("+")) in {*OWN, *read_catalog().knobs} or "=" not in arg:
                raise LabError(f"args: {arg}: {key}= is the plan's own, or no key", "give keys such as threads=512")
        if settings.args:
            composed("config", settings.args)
        self.plan()

    def plan(self) -> Plan:
        """The plan, by the records so far."""
        here = self.settings.cuda if self.device == "cuda" else self.settings.cpu
        after = (f"device={self.device}", f"seed={self.settings.seed}", *self.settings.args)

        def args(step: Step) -> tuple[str, ...]:
            runs = here.texts("args") if step.module == "experiments" else ()
            unused = [keys for what, (yaml, keys) in UNUSED.items() if what in step.args or yaml == step.module]
            words = (*runs, *step.args, *after) if step.run != "pytest" else step.args
            return tuple(word for word in words if re.split("[.=]", word.lstrip("+"))[0] not in chain(*unused))

        steps = [replace(step, args=args(step)) for step in read_steps(here, self.settings.only)]
        return Plan(steps, self.gpu, self.store.read(StepRecord), here.number("hang_s"))

    def collect(self) -> int:
        """Do the steps that are left, as far as the budget goes; 0: all are done, 1: one failed, 3: some wait."""
        stopped: set[str] = set()  # steps without progress in this call: not begun again
        while True:
            plan, seconds = self.plan(), self.deadline - budget.clock() - END
            left = [each for each in plan.left if each.name not in stopped]
            step = next((each for each in left if each.least <= seconds), None)
            if step is None:
                break
            budgeted = f" of {seconds:.0f} left" if seconds < inf else ""
            _say(f"{step.name}: about {plan.left_of(step):.0f} s{budgeted}")
            if not self._do(plan, step, seconds):
                stopped.add(step.name)
        print(table(plan))
        if left := [step for step in plan.left if plan.state(step) != FAILED]:
            print(f"left: {', '.join(f'{step.name} (about {plan.left_of(step):.0f} s)' for step in left)}")
            path = relative(self.store.path)
            print(f"The same command goes on there, also on another machine with a copy of {path}.")
            return UNFINISHED
        if failed := [step.name for step in plan.left]:
            print(f"failed: {', '.join(failed)}; their records have the last lines of what they printed")
        print("The tables, on any machine with these records: python -m experiments.report")
        return int(bool(failed))

    def _do(self, plan: Plan, step: Step, left: float) -> bool:
        """One call of a step, and its record. True if it may go on in this call: it was cut, but has made rows.

        A step that makes no row within its limit hangs: it has failed. left: seconds of the budget.
        """
        before, began = {row["id"] for row in self.store.records()}, budget.clock()
        limit, ended = plan.limit(step), Ended(INTERRUPTED, "")
        seconds = min(left, limit)
        try:
            ended = self.execute(self._argv(step, seconds), seconds)
        finally:
            new = [row for row in self.store.records() if row["id"] not in before]
            rows = [row for row in new if row.get("kind") in ROWS and row.get("status") != "INTERRUPTED"]
            hung = ended.code is None and seconds == limit and not rows
            interrupted = any(row.get("status") == "INTERRUPTED" for row in new)
            state = FAILED if hung else _state(ended, interrupted)
            if state == CUT and not rows and plan.state(step) == FAILED:
                state = FAILED  # also in this call's rest: it stays behind the others
            self.store.append(
                {
                    "kind": STEP,
                    "name": step.name,
                    "asked": plan.identity(step),
                    "device": plan.device,
                    "state": state,
                    "code": ended.code,
                    "seconds": budget.clock() - began,
                    "rows": len(rows),
                    "report": ended.tail if ended.code else "",
                    "provenance": provenance(self.choice.bus_id),
                }
            )
        if state == FAILED:
            how = f"failed with exit code {ended.code}" if ended.code else f"was stopped after {seconds:.0f} s"
            _say(f"{step.name} {how}; the other steps go on")
        return state == CUT and bool(rows)

    def _argv(self, step: Step, seconds: float) -> list[str]:
        if step.run == "pytest":
            return [step.run, *step.args]
        argv = [step.module, *step.args, f"results={override_text(self.store.path)}"]
        if step.module == "experiments" and step.row_s is not None:
            argv += [f"row_s={step.row_s:g}", f"budget_s={max(1.0, seconds - START - GRACE):.1f}"]
        return argv


def table(plan: Plan) -> str:
    """A line for each step: its state, the seconds it has taken, and those it should still take."""
    lines = [("step", "state", "seconds", "rows", "still about")]
    for step in plan.steps:
        calls, state = plan.calls(step), plan.state(step)
        still = "-" if state == DONE else f"{plan.left_of(step):.0f}"
        seconds, rows = sum(call.seconds for call in calls), sum(call.rows for call in calls)
        lines.append((step.name, state or "to do", f"{seconds:.0f}", str(rows), still))
    return aligned(lines)


def _state(ended: Ended, interrupted: bool) -> str:
    """State of a step: a verdict other than PASSED or a failed test is an answer; a stopped step goes on later.

    interrupted: a record of the step is INTERRUPTED, so its question is still open.
    """
    if ended.code in (0, 1):
        return CUT if interrupted else DONE
    return CUT if ended.code in (None, UNFINISHED, INTERRUPTED) else FAILED


def _say(text: str) -> None:
    print(f"evidence: {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None, execute: Execute = execute) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""

    def run(cfg: DictConfig) -> int:
        evidence = Evidence(Section.from_config(cfg).read(Settings), execute)
        if not evidence.settings.plan:
            return evidence.collect()
        print(table(evidence.plan()))
        return 0

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_task(run, "evidence", argv)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    raise SystemExit(main())

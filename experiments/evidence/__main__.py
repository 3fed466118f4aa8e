"""Evidence for the report, as much as a budget holds: `python -m experiments.evidence --help`."""

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from omegaconf import DictConfig

from common import ROOT
from common.config import budget
from common.config.cli import INTERRUPTED, UNFINISHED, guarded, run_task
from common.config.device_choice import choose_device
from common.config.resolve import SEEDS
from common.config.section import Section
from common.record.provenance import provenance
from common.record.store import Store
from experiments.evidence.execute import GRACE, Ended, execute
from experiments.evidence.plan import CUT, DONE, FAILED, ROWS, START, STEP, Plan, Step, read_steps
from experiments.tables.closing import near

KEYS = ("budget_s", "results", "device", "seed", "only", "args", "plan", "report", "debug", "cuda", "host")
END = 2.0  # seconds of the budget for what this command does after a step
Execute = Callable[[Sequence[str], float], Ended]


@dataclass(frozen=True)
class Request:
    """The keys of conf/evidence.yaml, which explains them. gpu: its name, or "host"."""

    deadline: float
    store: Store
    device: str
    gpu: str
    seed: int
    args: tuple[str, ...]
    plan: bool
    report: bool
    top: Section

    def steps(self) -> Plan:
        """The plan by the records that there are now."""
        top, here = self.top, self.top.section(self.device)
        before, after = here.texts("args"), (f"device={self.device}", f"seed={self.seed}", *self.args)
        steps = [
            step if step.run == "pytest" else replace(step, args=(*before, *step.args, *after))
            for step in read_steps(here, top.texts("only"))
        ]
        return Plan(steps, self.gpu, self.store.records(), here.number("hang_s"))


def request(cfg: DictConfig) -> Request:
    """The request of a configuration. Raises LabError for a bad value, or a store that cannot be written."""
    top = Section.from_config(cfg)
    top.only(KEYS)
    choice = choose_device(top.section("device").text("name"))
    wanted = Request(
        deadline=budget.clock() + top.number("budget_s") if top.given("budget_s") else inf,
        store=Store(top.location("results")),
        device=choice.name,
        gpu=choice.why if choice.name == "cuda" else "host",
        seed=top.whole("seed", 0, SEEDS - 1),
        args=top.texts("args"),
        plan=top.flag("plan"),
        report=top.flag("report"),
        top=top,
    )
    wanted.store.check()
    wanted.steps()
    return wanted


def evidence(wanted: Request, execute: Execute = execute) -> int:
    """Do the steps that are left, as far as the budget goes; 0 when all are done, 1 when one failed, 3 when some wait.

    execute: runs one step.
    """
    stopped: set[str] = set()  # in this call: what made no progress is not begun again
    while True:
        plan, seconds = wanted.steps(), wanted.deadline - budget.clock() - END
        left = [each for each in plan.left if each.name not in stopped]
        step = next((each for each in left if plan.least(each) <= seconds), None)
        if step is None:
            break
        _say(f"{step.name}: about {plan.estimate(step):.0f} s" + (f" of {seconds:.0f} left" if seconds < inf else ""))
        if not _do(wanted, plan, step, seconds, execute):
            stopped.add(step.name)
    print(table(plan))
    if left := [step for step in plan.left if plan.state(step) != FAILED]:
        print(f"left: {', '.join(f'{step.name} (about {plan.estimate(step):.0f} s)' for step in left)}")
        print(f"The same command goes on there, also on another machine with a copy of {near(wanted.store.path)}.")
        return UNFINISHED
    if failed := [step.name for step in plan.left]:
        print(f"failed: {', '.join(failed)}; their records have the last lines of what they printed")
    _report(wanted, execute)
    return int(bool(failed))


def table(plan: Plan) -> str:
    """A line for each step: its state, the seconds it has taken, and those that it should still take."""
    lines = [("step", "state", "seconds", "rows", "still about")]
    for step in plan.steps:
        calls, state = [row for row in plan.calls(step) if row["asked"] == plan.asked(step)], plan.state(step)
        took, rows = sum(row["seconds"] for row in calls), sum(row["rows"] for row in calls)
        still = "-" if state == DONE else f"{plan.estimate(step):.0f}"
        lines.append((step.name, state or "to do", f"{took:.0f}", str(rows), still))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _do(wanted: Request, plan: Plan, step: Step, left: float, execute: Execute) -> bool:
    """One call of a step, and its record. Whether it may go on in this call: it was cut, but has made rows.

    What makes no row within the limit of the step hangs: it has failed. left: seconds of the budget.
    """
    before, began = len(wanted.store.records()), budget.clock()
    limit, ended = plan.limit(step), Ended(INTERRUPTED, "")
    seconds = min(left, limit)
    try:
        ended = execute(_argv(wanted, step, seconds), seconds)
    finally:
        new = wanted.store.records()[before:]
        rows = [row for row in new if row.get("kind") in ROWS and row.get("status") != "INTERRUPTED"]
        hung = ended.code is None and seconds == limit and not rows
        interrupted = any(row.get("status") == "INTERRUPTED" for row in new)
        state = FAILED if hung else _state(ended, interrupted)
        wanted.store.append(
            {
                "kind": STEP,
                "name": step.name,
                "asked": plan.asked(step),
                "device": plan.device,
                "state": state,
                "code": ended.code,
                "seconds": budget.clock() - began,
                "rows": len(rows),
                "row_seconds": sum(row.get("took", 0.0) for row in rows),
                "report": ended.tail if ended.code else "",
                "provenance": provenance(),
            }
        )
    if state == FAILED:
        how = f"was stopped after its limit of {limit:.0f} s" if hung else f"failed with exit code {ended.code}"
        _say(f"{step.name} {how}; the other steps go on")
    return state == CUT and bool(rows)


def _argv(wanted: Request, step: Step, seconds: float) -> list[str]:
    if step.run == "pytest":
        return [step.run, *step.args]
    argv = [step.run, *step.args, f"results={wanted.store.path}"]
    if step.run == "experiments" and step.row_s is not None:
        argv += [f"row_s={step.row_s:g}", f"budget_s={max(1.0, seconds - START - GRACE):.1f}"]
    return argv


def _state(ended: Ended, interrupted: bool) -> str:
    """A verdict that is not PASSED, or a test that fails, is an answer; what was stopped is to go on.

    interrupted: whether a record says so of its stack, which ended neither the step nor its question.
    """
    if ended.code in (0, 1) and interrupted:
        return CUT
    if ended.code in (0, 1):
        return DONE
    return CUT if ended.code in (None, UNFINISHED, INTERRUPTED) else FAILED


def _report(wanted: Request, execute: Execute) -> None:
    """Make the report, or say how: it needs no GPU, and a budget is not for it."""
    path = wanted.store.path
    committed = path.parent == ROOT / "experiments" / "results"
    argv = ["experiments.report", *([] if committed else [f"records=[{path}]"])]
    if wanted.report and wanted.deadline == inf:
        execute(argv, inf)
    else:
        print(f"The report, on any machine: python -m {' '.join(argv)}")


def _say(text: str) -> None:
    print(f"evidence: {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None, execute: Execute = execute) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    requests: list[Request] = []

    def read(cfg: DictConfig) -> int:
        requests.append(request(cfg))
        return 0

    # `evidence` runs after Hydra has ended, as a step starts Hydra again.
    code = run_task(read, "evidence", sys.argv[1:] if argv is None else argv)
    if code or not requests:
        return code
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return guarded(lambda: show(requests[0]) if requests[0].plan else evidence(requests[0], execute))
    finally:
        signal.signal(signal.SIGTERM, before)


def show(wanted: Request) -> int:
    """Print the steps and their estimates, and run nothing."""
    print(table(wanted.steps()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

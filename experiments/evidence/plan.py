"""Plan of the evidence: steps done, estimates of the others by the records, and the next step."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from common.config.cli import INTERRUPTED
from common.config.section import Section
from common.errors import LabError
from common.record.provenance import code_sha
from common.record.record import StepRecord

STEP = "step"  # kind of the record that each call of a step leaves
ROWS = ("run", "row", "count", "build")  # kinds of records that are rows of a step
DONE, CUT, FAILED = "done", "cut", "failed"
START = 5.0  # least seconds until a process begins its first row
PATIENCE = 1.5  # limit of a process over its estimate, and of the next attempt over the seconds it had


@dataclass(frozen=True)
class Step:
    """A step of conf/evidence.yaml, which explains the keys. run: None for `experiments`."""

    name: str
    run: str | None
    args: tuple[str, ...]
    seconds: float
    row_s: float | None

    @property
    def module(self) -> str:
        return self.run or "experiments"

    @property
    def least(self) -> float:
        """Seconds of its start and one row; of the whole step if it has no rows."""
        return self.seconds if self.row_s is None else START + self.row_s


@dataclass(frozen=True)
class Plan:
    """The steps, in order, on one device, by the records of all calls so far, the oldest first.

    hang_s: seconds that a step with rows has at least: one that hangs is given up by its row's own limit, and recorded.
    """

    steps: Sequence[Step]
    device: str
    records: Sequence[StepRecord]
    hang_s: float

    def identity(self, step: Step) -> str:
        """Identity of a step: a record of it stands for it on every machine with this device and this code."""
        parts = [step.module, step.args, self.device, code_sha()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def state(self, step: Step) -> str:
        """State of its last call; "" without one."""
        return next((call.state for call in reversed(self.same(step))), "")

    @property
    def left(self) -> list[Step]:
        """Unfinished steps in order, then failed ones, which may fail again."""
        states = {step.name: self.state(step) for step in self.steps}
        left = [step for step in self.steps if states[step.name] not in (DONE, FAILED)]
        return left + [step for step in self.steps if states[step.name] == FAILED]

    def estimate(self, step: Step) -> float:
        """Seconds until the step is done."""
        return max(self._whole(step) - sum(call.seconds for call in self._begun(step)), self.least(step))

    def least(self, step: Step) -> float:
        """Seconds that must be left to begin it: its start and one row, or the whole step if it has no rows."""
        in_vain = (PATIENCE * call.seconds for call in self._begun(step) if not call.rows)
        return max(self._whole(step) if step.row_s is None else self._first_row(step), *in_vain, 0.0)

    def limit(self, step: Step) -> float:
        """Seconds after which its process is stopped, whatever the budget: a step that hangs costs no more."""
        return max(PATIENCE * max(self.estimate(step), step.seconds), self.hang_s if step.row_s else 0.0)

    def _first_row(self, step: Step) -> float:
        """Seconds of its start and one row."""
        for call in reversed(self.calls(step)):
            if call.rows:  # they may have run side by side; a step that was stopped has spent the rest within a row
                start = 0.0 if call.code in (None, INTERRUPTED) else call.seconds - call.row_seconds
                return max(START, start) + call.row_seconds / call.rows
        return step.least * self._slower

    def _whole(self, step: Step) -> float:
        """Seconds of the last complete call of the step on this device, else the first estimate."""
        return self._took(step) or step.seconds * self._slower

    def _took(self, step: Step) -> float:
        calls = self.calls(step)
        last = next((call.asked for call in reversed(calls) if call.state == DONE), None)
        return sum(call.seconds for call in calls if call.asked == last and (call.state == DONE or call.rows))

    @property
    def _slower(self) -> float:
        """Ratio of the seconds that steps took here to the first estimates; at least 1: an early end proves nothing."""
        took = {step: self._took(step) for step in self.steps}
        known = {step: seconds for step, seconds in took.items() if seconds}
        return max(1.0, sum(known.values()) / sum(step.seconds for step in known)) if known else 1.0

    def _begun(self, step: Step) -> list[StepRecord]:
        """Its calls that were stopped."""
        return [call for call in self.same(step) if call.state == CUT or call.code is None]

    def same(self, step: Step) -> list[StepRecord]:
        """Its calls with the same arguments and code."""
        identity = self.identity(step)
        return [call for call in self.calls(step) if call.asked == identity]

    def calls(self, step: Step) -> list[StepRecord]:
        """Its records on this device, the oldest first."""
        return [record for record in self.records if (record.name, record.device) == (step.name, self.device)]


def read_steps(section: Section, only: Sequence[str]) -> list[Step]:
    """The steps of a section of conf/evidence.yaml, with its settings. Raises LabError for a mistake in it.

    only: names of steps to keep; () for all.
    """
    section.only({"args", "hang_s", "steps"})
    listed = section.values["steps"]
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise LabError(f"{section.path}steps is no list of steps", "see conf/evidence.yaml")
    steps = [Section(each, f"{section.path}steps.{at}.").read(Step) for at, each in enumerate(listed)]
    for name in set(only) - {step.name for step in steps}:
        raise LabError(f"only={name} names no step", f"known here: {', '.join(step.name for step in steps)}")
    return [step for step in steps if not only or step.name in only]

"""Plan of the evidence: the steps of conf/evidence.yaml, those that records say are done, and the order of the rest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from common.config.section import Section
from common.errors import LabError
from common.record.provenance import code_sha
from common.record.record import StepRecord
from experiments.evidence.execute import GRACE

STEP = "step"  # kind of the record that each call of a step leaves
ROWS = ("run", "row", "count")  # kinds of records that are rows of a step
DONE, CUT, FAILED = "done", "cut", "failed"
START = 5.0  # least seconds until a process begins its first row
PATIENCE = 1.5  # limit of a process, as a multiple of its step's seconds


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
        """Seconds of its start, one row and its end; of the whole step if it has no rows."""
        return self.seconds if self.row_s is None else START + self.row_s + GRACE


@dataclass(frozen=True)
class Plan:
    """The steps, in order, on one device, by the records of all calls so far, the oldest first.

    hang_s: seconds that a step has at least: a row that hangs in it is given up by its own limit, and recorded.
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
        return next((call.state for call in reversed(self.calls(step))), "")

    @property
    def left(self) -> list[Step]:
        """Unfinished steps in order, then failed ones, which may fail again."""
        states = {step.name: self.state(step) for step in self.steps}
        left = [step for step in self.steps if states[step.name] not in (DONE, FAILED)]
        return left + [step for step in self.steps if states[step.name] == FAILED]

    def left_of(self, step: Step) -> float:
        """Seconds until the step is done, if it takes what it should."""
        spent = sum(call.seconds for call in self.calls(step) if call.state == CUT)
        return max(step.seconds - spent, step.least)

    def limit(self, step: Step) -> float:
        """Seconds after which its process is stopped, whatever the budget: a step that hangs costs no more."""
        return max(PATIENCE * step.seconds, self.hang_s)

    def calls(self, step: Step) -> list[StepRecord]:
        """Records of a step with the same arguments, device and code, the oldest first."""
        identity = self.identity(step)
        return [record for record in self.records if (record.name, record.asked) == (step.name, identity)]


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

"""Steps of the evidence: which are done, what the others should take by the records, and which one is next."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.config.cli import INTERRUPTED
from common.config.section import Section
from common.errors import LabError
from common.record.code import code_sha

Record = Mapping[str, Any]
STEP = "step"  # kind of the record that each call of a step leaves
ROWS = ("run", "row", "count", "build")  # kinds of records that are rows of a step
DONE, CUT, FAILED = "done", "cut", "failed"
START = 5.0  # seconds until a process begins its first row, at least
PATIENCE = 1.5  # estimates after which a process is stopped; it is tried again with so many times the seconds it had


@dataclass(frozen=True)
class Step:
    """`python -m run args`. seconds, row_s: first estimates, as conf/evidence.yaml explains them."""

    name: str
    run: str
    args: tuple[str, ...]
    seconds: float
    row_s: float | None

    @classmethod
    def read(cls, section: Section) -> "Step":
        section.only({"name", "run", "args", "seconds", "row_s"})
        run = section.text("run") if section.given("run") else "experiments"
        row = section.number("row_s") if section.given("row_s") else None
        return cls(section.text("name"), run, section.texts("args"), section.number("seconds"), row)

    @property
    def least(self) -> float:
        """Seconds of its start and one row, or of all of it where it has no rows."""
        return self.seconds if self.row_s is None else START + self.row_s


@dataclass(frozen=True)
class Plan:
    """The steps, in order, on one device, by the records of all calls so far, the oldest first.

    hang_s: seconds that a step with rows has at least: one that hangs is given up by its row's own limit, and recorded.
    """

    steps: Sequence[Step]
    device: str
    records: Sequence[Record]
    hang_s: float

    def asked(self, step: Step) -> str:
        """Identity of a step: a record of it stands for it on every machine with this device and this code."""
        parts = [step.run, step.args, self.device, code_sha()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def state(self, step: Step) -> str:
        """State of its last call; "" without one."""
        return next((row["state"] for row in reversed(self.calls(step)) if row["asked"] == self.asked(step)), "")

    @property
    def left(self) -> list[Step]:
        """The steps that are not done: in order, and then those that failed, which may fail again."""
        states = {step.name: self.state(step) for step in self.steps}
        left = [step for step in self.steps if states[step.name] not in (DONE, FAILED)]
        return left + [step for step in self.steps if states[step.name] == FAILED]

    def estimate(self, step: Step) -> float:
        """Seconds until the step is done."""
        return max(self._whole(step) - sum(row["seconds"] for row in self._begun(step)), self.least(step))

    def least(self, step: Step) -> float:
        """Seconds that must be left to begin it: of its start and one row, or of all of it where it has no rows."""
        in_vain = (PATIENCE * row["seconds"] for row in self._begun(step) if not row["rows"])
        return max(self._whole(step) if step.row_s is None else self._first_row(step), *in_vain, 0.0)

    def limit(self, step: Step) -> float:
        """Seconds after which its process is stopped, whatever the budget: a step that hangs costs no more."""
        return max(PATIENCE * max(self.estimate(step), step.seconds), self.hang_s if step.row_s else 0.0)

    def _first_row(self, step: Step) -> float:
        """Seconds of its start and one row."""
        for row in reversed(self.calls(step)):
            if row["rows"]:  # they may have run side by side; a step that was stopped has spent the rest within a row
                start = 0.0 if row["code"] in (None, INTERRUPTED) else row["seconds"] - row["row_seconds"]
                return max(START, start) + row["row_seconds"] / row["rows"]
        return step.least * self._slower

    def _whole(self, step: Step) -> float:
        """Seconds of the last time that the step came to its end on this device, else the first estimate."""
        return self._took(step) or step.seconds * self._slower

    def _took(self, step: Step) -> float:
        calls = self.calls(step)
        last = next((row["asked"] for row in reversed(calls) if row["state"] == DONE), None)
        return sum(row["seconds"] for row in calls if row["asked"] == last and (row["state"] == DONE or row["rows"]))

    @property
    def _slower(self) -> float:
        """Ratio of the seconds that steps took here to the first estimates; at least 1: an early end proves nothing."""
        took = {step: self._took(step) for step in self.steps}
        known = {step: seconds for step, seconds in took.items() if seconds}
        return max(1.0, sum(known.values()) / sum(step.seconds for step in known)) if known else 1.0

    def _begun(self, step: Step) -> list[Record]:
        """The calls since it was last asked anew that were stopped."""
        asked, calls = self.asked(step), self.calls(step)
        return [row for row in calls if row["asked"] == asked and (row["state"] == CUT or row["code"] is None)]

    def calls(self, step: Step) -> list[Record]:
        """Its records on this device, the oldest first."""
        return [
            row
            for row in self.records
            if row.get("kind") == STEP and row["name"] == step.name and row["device"] == self.device
        ]


def read_steps(section: Section, only: Sequence[str]) -> list[Step]:
    """The steps of a section of conf/evidence.yaml, with its settings. Raises LabError for a mistake in it.

    only: names of those that are wanted; () for all.
    """
    section.only({"args", "hang_s", "steps"})
    listed = section.values["steps"]
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise LabError(f"{section.path}steps is no list of steps", "see conf/evidence.yaml")
    steps = [Step.read(Section(each, f"{section.path}steps.{at}.")) for at, each in enumerate(listed)]
    for name in set(only) - {step.name for step in steps}:
        raise LabError(f"only={name} names no step", f"known here: {', '.join(step.name for step in steps)}")
    return [step for step in steps if not only or step.name in only]

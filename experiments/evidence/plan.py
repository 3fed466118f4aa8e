"""Steps of the evidence: which are done, what the others should take by the records, and which one is next."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.config.section import Section
from common.errors import LabError
from common.record.code import code_sha

Record = Mapping[str, Any]
STEP = "step"  # kind of the record that each call of a step leaves
ROWS = ("run", "row", "count", "build")  # kinds of records that are rows of a step
DONE, CUT, FAILED = "done", "cut", "failed"
START = 5.0  # seconds until a process begins its first row, at least
RAN_OUT = 1.5  # a step without rows that was stopped gets so many times the seconds it had


@dataclass(frozen=True)
class Step:
    """`python -m run args`. seconds, least_s, row_s: first estimates, as conf/evidence.yaml explains them."""

    name: str
    run: str
    args: tuple[str, ...]
    seconds: float
    least_s: float
    row_s: float | None

    @classmethod
    def read(cls, section: Section) -> "Step":
        section.only({"name", "run", "args", "seconds", "least_s", "row_s"})
        seconds = section.number("seconds")
        least = section.number("least_s") if section.given("least_s") else seconds
        row = section.number("row_s") if section.given("row_s") else None
        return cls(section.text("name"), section.text("run"), section.texts("args"), seconds, least, row)


@dataclass(frozen=True)
class Plan:
    """The steps, in order, on one device, by the records of all calls so far, the oldest first."""

    steps: Sequence[Step]
    device: str
    records: Sequence[Record]

    def asked(self, step: Step) -> str:
        """What decides the step: a record of it stands for it on every machine with this device and this code."""
        parts = [step.run, step.args, self.device, code_sha()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def state(self, step: Step) -> str:
        """How its last call ended; "" without one."""
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
        in_vain = (RAN_OUT * row["seconds"] for row in self._begun(step) if not row["rows"])
        return max(self._whole(step) if step.row_s is None else self._first_row(step), *in_vain, 0.0)

    def _first_row(self, step: Step) -> float:
        """Seconds of its start and one row."""
        for row in reversed(self.calls(step)):
            if row["rows"]:  # they may have run side by side; a step that was stopped has spent the rest within a row
                start = 0.0 if row["code"] is None else row["seconds"] - row["row_seconds"]
                return max(START, start) + row["row_seconds"] / row["rows"]
        return step.least_s * self._slower

    def _whole(self, step: Step) -> float:
        """Seconds of the last time that the step came to its end on this device, else the first estimate."""
        return self._took(step) or step.seconds * self._slower

    def _took(self, step: Step) -> float:
        calls = self.calls(step)
        last = next((row["asked"] for row in reversed(calls) if row["state"] == DONE), None)
        return sum(row["seconds"] for row in calls if row["asked"] == last)

    @property
    def _slower(self) -> float:
        """How many times longer than first estimated the steps took here; at least 1: an early end proves nothing."""
        took = {step: self._took(step) for step in self.steps}
        known = {step: seconds for step, seconds in took.items() if seconds}
        return max(1.0, sum(known.values()) / sum(step.seconds for step in known)) if known else 1.0

    def _begun(self, step: Step) -> list[Record]:
        """The calls since it was last asked anew that did not come to its end."""
        asked = self.asked(step)
        return [row for row in self.calls(step) if row["asked"] == asked and row["state"] == CUT]

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
    section.only({"args", "steps"})
    listed = section.values["steps"]
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise LabError(f"{section.path}steps is no list of steps", "see conf/evidence.yaml")
    steps = [Step.read(Section(each, f"{section.path}steps.{at}.")) for at, each in enumerate(listed)]
    for name in set(only) - {step.name for step in steps}:
        raise LabError(f"only={name} names no step", f"known here: {', '.join(step.name for step in steps)}")
    return [step for step in steps if not only or step.name in only]


def filled(args: Sequence[str], best: Sequence[str]) -> list[str]:
    """The arguments with what {best3} stands for by now, and {best}, its first.

    They are no part of what a step is asked: a time that changes a little would have it done again.
    """
    return [arg.replace("{best3}", ",".join(best)).replace("{best}", best[0]) for arg in args]


def fastest(records: Iterable[Record], gpu: str, names: Iterable[str], count: int) -> list[str]:
    """The `count` fastest of `names` on `gpu` at the first position that was timed, by runs of one model and cache."""
    known = set(names)
    runs = [
        row
        for row in records
        if row.get("kind") == "run" and row["device"].get("gpu") == gpu and row["variant"] in known and row["latencies"]
    ]
    shape = next((row["model"] for row in runs), None)  # the first: of the step that times all stacks
    times = {
        row["variant"]: row["latencies"][0]["seconds"]["median"]
        for row in runs
        if row["model"] == shape and row["latencies"][0]["verdict"] != "IMPLAUSIBLE"
    }
    return sorted(times, key=lambda name: times[name])[:count]

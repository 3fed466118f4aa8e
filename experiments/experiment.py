"""One experiment: its configuration, options, stacks, times, rows and table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

from common.config.section import Section
from common.errors import LabError
from common.errors.machine import MachineError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, check_stack
from experiments.prediction.gpus import GpuModel
from experiments.prediction.predictor import Predictor
from experiments.rows import Rows
from experiments.tables.result_table import MEASURED, PREDICTED, ResultTable
from experiments.tables.row import IMPLAUSIBLE, label, label_of

TIME = "GPU time; the figures here are predictions from exact counts"


@dataclass(frozen=True)
class StepTime:
    """Microseconds of a token at one position, and of its parent's: measured in turn, or predicted. NaN: no time."""

    us: float
    parent_us: float


@dataclass(frozen=True)
class Experiment(Rows):
    """One experiment under way."""

    @property
    def options(self) -> Section:
        return self.config.options

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions in `options.positions` that the KV cache holds. Raises LabError when it holds none of them."""
        positions = self.options.wholes("positions", low=0)
        if min(positions) >= self.model.positions:
            cause = f"options.positions: none of {list(positions)} is in 0..{self.model.positions - 1}"
            raise LabError(f"{cause}, the positions of the KV cache", f"give model.positions={min(positions) + 1}")
        return tuple(position for position in positions if position < self.model.positions)

    @property
    def predictor(self) -> Predictor:
        return self.lab.predictor

    def stack(self, name: str, knobs: Mapping[str, Any] | None = None) -> Stack:
        """The variant or named stack `name`, with those knobs of the command line that it has, and with `knobs`."""
        usual = self.lab.choose(name, {})
        return self.lab.choose(name, self.own_knobs(usual.variants) | dict(knobs or {}))

    def stacks(self, names: Sequence[str], *more: Stack) -> list[Stack]:
        """`stack` of each of `names`, else of all variants and named stacks; then `more`.

        Raises LabError for a knob of the command line that none of them has: it would change nothing.
        """
        catalog = read_catalog()
        chosen = [*map(self.stack, names or (*catalog.variants, *catalog.stacks)), *more]
        self.check_knobs(chosen)
        return chosen

    def check_knobs(self, stacks: Sequence[Stack]) -> None:
        """Raise LabError for a knob of the command line that none of `stacks` has."""
        effective = self.own_knobs([name for stack in stacks for name in stack.variants])
        for knob in self.config.knobs:
            if knob not in effective:
                names = ", ".join(stack.name for stack in stacks) or "it"
                takers = ", ".join(read_catalog().takers(knob))
                cause = f"{knob}= has no effect on experiment={self.config.task}: {names} has no such knob"
                raise LabError(cause, f"leave it out; variants that take it: {takers}")

    def composed(self, names: Sequence[str], parent: Sequence[str], like: Stack | None = None) -> Stack:
        """The stack of `names` compared with `parent`; knobs as in `like`, else of the command line or the defaults."""
        stack = self.lab.choose(list(names) or ["baseline"], self.own_knobs(names))
        knobs = dict(stack.knobs) | {name: like.knobs[name] for name in stack.knobs if like and name in like.knobs}
        return replace(stack, parent=check_stack(parent, read_catalog()), knobs=knobs)

    def own_knobs(self, variants: Sequence[str]) -> dict[str, Any]:
        """Knobs of the command line that one of `variants` has."""
        catalog = read_catalog().variants
        own = {knob.name for name in variants if name in catalog for knob in catalog[name].knobs}
        return {knob: value for knob, value in self.config.knobs.items() if knob in own}

    def answer(
        self,
        question: str,
        rows: Sequence[Mapping[str, Any]],
        notes: Sequence[str] = (),
        otherwise: tuple[str, str | None] = (PREDICTED, TIME),
        keys: int = 1,
    ) -> ResultTable:
        """Table of figures measured on a GPU; `otherwise`: their basis without one, and what a GPU would add."""
        basis, missing = (MEASURED, None) if self.on_gpu else otherwise
        return ResultTable(self.config.task, question, rows, basis, notes, missing, keys)

    def measured_or_predicted(
        self, stacks: Sequence[Stack], positions: Sequence[int], apart: bool = False
    ) -> list[tuple[Stack, list[StepTime]]]:
        """Each stack with its times at `positions`: measured on a GPU, else predicted for `options.gpu`.

        A stack without any time is left out. apart: each position in a record of its own, so that an interruption loses
        no other; else all of them at the positions of the run.
        """
        if self.on_gpu:
            runs = [self.measure(stacks, position) for position in positions] if apart else [self.measure(stacks)]
            times = [_step_times(records, positions) for records in zip(*runs, strict=True)]
        else:
            gpu = self.predictor.gpu(self.options.text("gpu"))
            work = (partial(self._predicted, stack, gpu, positions) for stack in stacks)
            times = [self.attempt(label_of(stack), each) for stack, each in zip(stacks, work, strict=True)]
        return [(stack, of_stack) for stack, of_stack in zip(stacks, times, strict=True) if of_stack]

    def _predicted(self, stack: Stack, gpu: GpuModel, positions: Sequence[int]) -> list[StepTime]:
        def us(variants: tuple[str, ...], position: int) -> float:
            return 1e6 * self.predictor.predict(variants, stack.knobs, gpu, position).seconds

        return [StepTime(us(stack.variants, position), us(stack.parent, position)) for position in positions]

    def measure(self, stacks: Sequence[Stack], position: int | None = None) -> list[dict[str, Any]]:
        """The record of each stack, timed beside its parent on the GPU; at `position`, else at those of the run.

        A stack that did not pass has no latencies, and IMPLAUSIBLE ones are removed: `left_out` says which and why.
        """
        return [self._plausible(record) for record in self.measured_records(stacks, position)]

    def measured_records(self, stacks: Sequence[Stack], position: int | None = None) -> list[dict[str, Any]]:
        """Validate and time each stack, each in a process of its own.

        Raises LabError where timing is forbidden, and MachineError where another process has ended one of them.
        """
        from experiments.run.sweep import open_sweep

        timing = self.config.timing
        if timing is None:
            raise LabError("this experiment measures, and timing=none forbids it", "leave timing=none out")
        timing = timing if position is None else replace(timing, positions=(position,))
        with open_sweep(replace(self.config, stacks=tuple(stacks), timing=timing), self.show) as sweep:
            sweep.run()
        records = [sweep.records[index] for index in range(len(stacks))]
        for record in records:
            if record["status"] == "INTERRUPTED":  # no row is made of what says nothing
                raise MachineError(f"{record['variant']}: {record['reason']}", "give the command again")
        return records

    def _plausible(self, record: dict[str, Any]) -> dict[str, Any]:
        failure = f"Left out: {label(record)}, {record['status']}: {record['reason']}"
        if record["status"] != "PASSED" and failure not in self.left_out:  # at one position, or at each
            self.left_out.append(failure)
        kept = []
        for timed in record["latencies"]:
            if timed["verdict"] == IMPLAUSIBLE:
                place = f"{label(record)} at position {timed['position']}"
                ceiling = f"{100 * timed['of_ceiling']:.0f} % of the read ceiling"
                self.left_out.append(f"Left out: {place}, {IMPLAUSIBLE}: {ceiling}")
            else:
                kept.append(timed)
        return record | {"latencies": kept}


def _step_times(records: Sequence[Mapping[str, Any]], positions: Sequence[int]) -> list[StepTime]:
    """Times in the records of one stack; none at all if it has none at any position."""
    latencies = {timed["position"]: timed for record in records for timed in record["latencies"]}
    times = []
    for position in positions if latencies else ():
        timed = latencies.get(position)
        us = 1e6 * timed["seconds"]["median"] if timed else nan
        effect = timed["comparison"]["effect"] if timed and timed["comparison"] else 0.0
        times.append(StepTime(us, us / (1 + effect)))
    return times

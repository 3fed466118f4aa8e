"""Sweep over stacks: the parent process, which owns the job queue and the store and starts the workers."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from common.config import budget
from common.config.run_config import RunConfig
from common.errors import LabError, Unfinished
from common.json_values import to_json
from common.lazy import cupy
from common.model.shapes import Model
from common.record.measurement import STOPPED
from common.record.record import RunRecord
from common.stacks.stack import Stack
from common.validate.verdict import PASSED
from experiments.run.describe import Findings, identity, keep, origin_of, proof_of, request_of
from experiments.run.pool import Pool
from experiments.run.setup import Setup
from experiments.tables.progress import Progress
from experiments.tables.row import finished

UNDECIDED = ("INTERRUPTED", "OOM")  # statuses that say nothing about the kernel
COMPILING = 4  # with so many cores per GPU a second worker compiles ahead
STEPS = 4  # per stack in the progress bar
Record = dict[str, Any]


@dataclass
class Sweep:
    """All stacks of one run. `records`: index of the stack -> its record, with the id that the store gave."""

    setup: Setup
    pool: Pool
    records: dict[int, Record]
    took: list[float] = field(default_factory=list)  # seconds of rows like these, the newest last

    @property
    def config(self) -> RunConfig:
        return self.setup.config

    @property
    def show(self) -> Progress:
        return self.setup.show

    def of(self, stacks: Sequence[Stack]) -> "Sweep":
        """A sweep over other stacks, by the same workers."""
        setup = copy(self.setup)
        setup.config = replace(self.config, stacks=tuple(stacks))
        return Sweep(setup, self.pool, {})

    def run(self, beat: float | None = None) -> None:
        """Compile, validate, measure and record every stack. On an interrupt, running stacks are recorded as such.

        beat: seconds of a step; a stack that surely needs more is not measured to the end, and on resuming not again.
        Raises Unfinished, when all others are done, where the budget did not hold some.
        """
        stacks, past = self.config.stacks, self.setup.store.read(RunRecord)
        self.took = [record.took for record in past if record.took and self._alike(record)]
        validated = self._resume(past, beat) if self.config.resume else {}
        left = [index for index in range(len(stacks)) if index not in self.records]
        if self.config.device.name == "cuda" and len(left) > 1:
            each = self.config.budget.estimate(self.took)
            self.show.note(f"{len(left)} stacks, at about {each:.0f} s each: {len(left) * each / 60:.2g} min")
        begun, since = dict.fromkeys(left, 0), dict.fromkeys(left, 0.0)

        def fits(job: int) -> bool:
            since[left[job]] = budget.clock()
            return self.config.budget.holds(self.took)

        def notify(job: int | None, kind: str, text: str) -> None:
            if job is None:  # a worker that starts sends notes only
                self.show.note(text)
                return
            index = left[job]
            begun[index] += kind == "begin"
            if kind == "detail":
                self.show.detail(text, of=stacks[index].name)
            else:
                (self.show.begin if kind == "begin" else self.show.note)(text)

        jobs = [{"stack": stacks[index], "proof": validated.get(index), "beat": beat} for index in left]
        try:
            for job, device, found in self.pool.run(jobs, notify, fits):
                self.show.skip(STEPS - begun[left[job]])
                self.took.append(budget.clock() - since[left[job]])
                self._keep(left[job], device, {**found, "took": self.took[-1]})
        except KeyboardInterrupt:
            for index in [left[job] for job in self.pool.running]:
                if index not in self.records:
                    reason = "the run was interrupted; resume=true continues from here"
                    self._keep(index, self.pool.describe(), {"status": "INTERRUPTED", "reason": reason})
            raise
        if unfinished := [stack.name for index, stack in enumerate(stacks) if index not in self.records]:
            each = self.config.budget.estimate(self.took)
            names = ", ".join(unfinished)
            raise Unfinished(
                f"{len(unfinished)} of {len(stacks)} stacks are left, at about {each:.0f} s each: {names}",
                "the same command with resume=true goes on there",
            )

    def _alike(self, record: RunRecord) -> bool:
        """True if a record of this device took as long as the rows of this run should: its settings are the same."""
        settings = to_json([request_of(self.config), self.setup.model, self.config.device.name])
        return settings == [record.asked, to_json(record.model), record.device.device]

    def _keep(self, index: int, device: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Record one stack. The findings of a worker that crashed or hung are a status, a reason and a report only."""
        stack = self.config.stacks[index]
        if "kind" not in found:
            found = Findings(source_sha=self.setup.source(stack).sha).as_record() | dict(found)
        self.records[index] = keep(self.setup, device, stack, found)
        self.show.note(finished(self.records[index]))

    def _resume(self, past: Sequence[RunRecord], beat: float | None) -> dict[int, Record]:
        """Take what `past` decides into the records; returns, by index, the validation of stacks that need only timing.

        A record made under another name of the same stack is shown under the one of this run. On a GPU, a text that
        was validated with the same inputs is only timed: GPU time is for open questions. Outputs of timed launches are
        checked in any case.
        """
        rows = [record.row for record in past if record.status not in UNDECIDED]
        by_identity = {identity(row): row for row in rows if _decides(row, beat)}
        by_proof = {proof_of(row): row for row in rows}
        timing = self.config.device.name == "cuda" and self.config.timing
        device, validated = self.pool.describe(), dict[int, Record]()
        for index, stack in enumerate(self.config.stacks):
            with suppress(LabError):  # a stack without a source fails later
                origin = to_json(origin_of(self.setup, device, stack, self.setup.source(stack).sha))
                if row := by_identity.get(identity(origin)):
                    self.records[index] = {**row, "variant": stack.name}
                    self.show.note(f"{stack.name}: already recorded as {row['id']}")
                    self.show.skip(STEPS)
                elif timing and (row := by_proof.get(proof_of(origin))) and row["status"] == PASSED:
                    validated[index] = {name: row[name] for name in ("id", "verdict", "blocks")}
        return validated


def _decides(row: Mapping[str, Any], beat: float | None) -> bool:
    """False for a measurement that a search stopped as too slow, unless it is too slow for `beat`, too."""
    lows = [timed["seconds"]["low"] for timed in row.get("latencies") or () if timed["verdict"] == STOPPED]
    return not lows or (beat is not None and max(lows) > beat)


@contextmanager
def open_sweep(config: RunConfig, show: Progress) -> Iterator[Sweep]:
    """Open store, weights and workers; the workers end with the block. Raises LabError when one cannot be opened."""
    setup = Setup(config, show)
    setup.check()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill`, or a preempting scheduler
    try:
        with Pool(config, setup.packed.sha, places(config, setup.model)) as pool:
            yield Sweep(setup, pool, {})
    finally:
        signal.signal(signal.SIGTERM, before)


def places(config: RunConfig, model: Model) -> Sequence[Mapping[str, str]]:
    """Environment variables of each worker: one or two per GPU, one per core, or one if a kernel uses all cores.

    With cores for it, one of a GPU's two workers compiles the next stack while the other uses the GPU: no more, as each
    has its own weights there. Cores that this process may not use, such as other jobs' in SLURM, do not count.
    """
    cores = len(os.sched_getaffinity(0))
    if config.device.name == "cuda":
        count, given = cupy.cuda.runtime.getDeviceCount(), os.environ.get("CUDA_VISIBLE_DEVICES")
        names = given.split(",")[:count] if given else map(str, range(count))
        gpus = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
        return gpus * (2 if cores >= COMPILING * len(gpus) else 1)
    workers = 1 if model.large else cores
    return [{"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(cores // workers)}] * workers

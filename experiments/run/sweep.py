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
from common.devices.nvml import Gpu
from common.errors import LabError, Unfinished
from common.model.shapes import Model
from common.record.json_values import to_json
from common.stacks.stack import Stack
from common.validate.verdict import PASSED
from experiments.run.describe import Findings, about, asked, identity, key_of, proof_of
from experiments.run.pool import Pool
from experiments.run.setup import Setup
from experiments.run.worker import first_request
from experiments.tables.progress import Progress
from experiments.tables.row import STOPPED, finished, row_of

UNDECIDED = ("INTERRUPTED", "OOM")  # statuses that say nothing of the kernel
STEPS = 4  # of each stack in the progress bar
SLOW = "{} stacks under ThreadSanitizer: each is compiled again, and runs many times slower; all of them take minutes"
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

        beat: seconds of a step; a stack that surely needs more is not measured to the end.
        Raises Unfinished, when all others are done, where the budget did not hold some.
        """
        stacks, store = self.config.stacks, self.setup.store.records()
        before = self._records_before() if self.config.resume else {}
        known = self._known(store, before) if before else {}
        self.took = [row["took"] for row in store if row.get("took") and self._alike(row)]
        self.records |= known
        if self.config.sanitize and len(stacks) > len(known):
            self.show.note(SLOW.format(len(stacks) - len(known)))
        for index in known:
            self.show.note(f"{stacks[index].name}: already recorded as {known[index]['id']}")
            self.show.skip(STEPS)
        proved = self._proved(store, before) if before else {}
        left = [index for index in range(len(stacks)) if index not in known]
        for index in [index for index in left if proved.get(index, {}).get("status", PASSED) != PASSED]:
            left.remove(index)
            self._keep(index, proved[index]["device"], _same_failure(proved[index]))
            self.show.skip(STEPS)
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

        done: set[int] = set()
        try:
            jobs = [
                {"stack": to_json(stacks[index]), "proof": _proof(proved.get(index)), "beat": beat} for index in left
            ]
            for job, device, found in self.pool.run(jobs, notify, fits):
                done.add(left[job])
                self.show.skip(STEPS - begun[left[job]])
                self.took.append(budget.clock() - since[left[job]])
                self._keep(left[job], device, {**found, "took": self.took[-1]})
        except KeyboardInterrupt:
            for job in self.pool.running:
                if left[job] not in done:
                    reason = "the run was interrupted; resume=true continues from here"
                    self._keep(left[job], self.pool.describe(), {"status": "INTERRUPTED", "reason": reason})
            raise
        self._check_finished()

    def _check_finished(self) -> None:
        stacks = self.config.stacks
        if left := [stack.name for index, stack in enumerate(stacks) if index not in self.records]:
            each = self.config.budget.estimate(self.took)
            raise Unfinished(
                f"{len(left)} of {len(stacks)} stacks are left, at about {each:.0f} s each: {', '.join(left)}",
                "the same command with resume=true goes on there",
            )

    def _alike(self, row: Mapping[str, Any]) -> bool:
        """True if a record of this device took as long as the rows of this run should: it was asked the same."""
        asked_now = to_json([asked(self.config), self.setup.model, self.config.device.name])
        return row.get("kind") == "run" and [row.get("asked"), row["model"], row["device"]["device"]] == asked_now

    def _keep(self, index: int, device: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Record one stack. The findings of a worker that crashed or hung are a status, a reason and a report only."""
        stack = self.config.stacks[index]
        if "kind" not in found:
            found = Findings(source_sha=self.setup.source(stack).sha).as_record() | dict(found)
        gpu = Gpu.find(device["bus_id"]) if "bus_id" in device else None
        record = about(self.setup, device, stack, found, gpu) | dict(found)
        self.records[index] = to_json(record) | {"id": self.setup.store.append(record)}
        self.show.note(finished(row_of(self.records[index])))

    def _known(self, store: Sequence[Record], before: Mapping[int, Record]) -> dict[int, Record]:
        """The newest record of every stack that the store has already; undecided and stopped ones do not count.

        A record may have been made under another name of the same stack, and is shown under the one of this run.
        """
        ended = (row for row in store if row.get("kind") == "run" and row["status"] not in UNDECIDED)
        rows = {identity(row): row for row in ended if not _stopped(row)}
        return {
            index: rows[identity(row)] | {"variant": self.config.stacks[index].name}
            for index, row in before.items()
            if identity(row) in rows
        }

    def _proved(self, store: Sequence[Record], before: Mapping[int, Record]) -> dict[int, Record]:
        """On a GPU, of every stack to time the newest record that validated the same text with the same inputs.

        It is not validated again: GPU time is for what is not known. What timed launches leave is checked in any case.
        """
        if self.config.device.name != "cuda" or not self.config.timing:
            return {}
        rows = {proof_of(row): row for row in store if row.get("kind") == "run" and row["status"] not in UNDECIDED}
        return {index: rows[proof_of(row)] for index, row in before.items() if proof_of(row) in rows}

    def _records_before(self) -> dict[int, Record]:
        """The key of each stack's record, by index. Stacks without a source are left out; they fail later."""
        setup, config, device, found = self.setup, self.config, self.pool.describe(), {}
        for index, stack in enumerate(config.stacks):
            with suppress(LabError):
                name = key_of(setup.source(stack).sha, stack, setup.model, setup.packed, device)
                row = {"key": name, "parent": stack.parent, "asked": asked(config), "seed": config.seed}
                found[index] = to_json(row)
        return found


def _proof(row: Record | None) -> Record | None:
    """Job of a worker for a stack that has passed."""
    return row and {"id": row["id"], "verdict": row["verdict"], "blocks": row["blocks"]}


def _stopped(row: Record) -> bool:
    """True if a measurement was given up, as that of a stack which was too slow for a search."""
    return any(timed["verdict"] == STOPPED for timed in row.get("latencies") or ())


def _same_failure(row: Record) -> Record:
    """The findings of a stack that is known to fail: it would fail again, and a hang costs minutes."""
    found = Findings(
        row["status"], f"{row['reason']} (found in {row['id']})", row["report"], row["source_sha"], row["id"]
    )
    return found.as_record() | {"verdict": row["verdict"], "blocks": row["blocks"], "took": 0.0}


@contextmanager
def open_sweep(config: RunConfig, show: Progress) -> Iterator[Sweep]:
    """Open store, weights and workers; the workers end with the block. Raises LabError when one cannot be opened."""
    setup = Setup(config, show)
    setup.check()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill`, or a preempting scheduler
    try:
        with Pool(first_request(config, setup.packed.sha), places(config, setup.model), config.timeout_s) as pool:
            yield Sweep(setup, pool, {})
    finally:
        signal.signal(signal.SIGTERM, before)


def places(config: RunConfig, model: Model) -> Sequence[Mapping[str, str]]:
    """Environment variables of each worker: one per GPU, one per core, or a single one if a kernel uses all cores."""
    if config.device.name == "cuda":
        return [{"CUDA_VISIBLE_DEVICES": name} for name in _gpus()]
    cores = os.cpu_count() or 1
    workers = 1 if model.large else cores
    return [{"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(cores // workers)}] * workers


def _gpus() -> list[str]:
    """Names of the GPUs in the form of CUDA_VISIBLE_DEVICES."""
    from cupy.cuda import runtime

    count = runtime.getDeviceCount()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:count] if chosen else [str(ordinal) for ordinal in range(count)]

"""The parent's side of a run: it keeps the queue and the store, and starts the processes that do the work."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from common.config import RunConfig
from common.expected import LARGE
from common.gpu import Gpu
from common.model import Model
from common.plain import plain
from common.records import Store
from common.stack import Stack
from common.weights import Packed
from experiments.isolate import Pool
from experiments.progress import Progress
from experiments.run import Case, about, asked, findings, gather, key_of, source_text
from experiments.worker import packed as request

STEPS = 4  # of each stack, shown in the progress
Record = dict[str, Any]


@dataclass
class Sweep:
    """Stacks on their way through their workers. `records` fills up: by stack, with the id that the store gave."""

    config: RunConfig
    model: Model
    packed: Packed
    store: Store
    show: Progress
    pool: Pool
    records: dict[int, Record]

    def run(self) -> None:
        """Compile, validate and measure every stack, and record it. Interrupted, it records what was under way."""
        stacks = self.config.stacks
        known = self._known() if self.config.resume else {}
        self.records |= known
        for index in known:
            self.show.note(f"{stacks[index].name}: recorded before as {known[index]['id']}")
            self.show.skip(STEPS)
        left = [index for index in range(len(stacks)) if index not in known]
        begun = dict.fromkeys(left, 0)

        def tell(job: int, kind: str, text: str) -> None:
            index = left[job]
            begun[index] += kind == "begin"
            self._tell(stacks[index], kind, text)

        done: set[int] = set()
        try:
            for job, device, found in self.pool.run([{"stack": plain(stacks[index])} for index in left], tell):
                done.add(left[job])
                self.show.skip(STEPS - begun[left[job]])
                self._keep(left[job], device, found)
        except KeyboardInterrupt:
            for job in self.pool.running:
                if left[job] not in done:
                    stopped = {
                        "status": "INTERRUPTED",
                        "reason": "the run was interrupted; resume=true goes on from here",
                    }
                    self._keep(left[job], self.pool.describe(), stopped)
            raise

    def _tell(self, stack: Stack, kind: str, text: str) -> None:
        if kind == "detail":
            self.show.detail(text, of=stack.name)
        else:
            (self.show.begin if kind == "begin" else self.show.note)(text)

    def _keep(self, index: int, device: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Record one stack. A worker that ended without an answer has told a status, a reason and a report only."""
        stack = self.config.stacks[index]
        if "kind" not in found:
            self.show.note(f"error: {stack.name}: {found['status']} {found['reason']}")
            found = findings(Case(stack)) | {"source_sha": self._source(stack)} | found
        gpu = Gpu.find(device["bus_id"]) if "bus_id" in device else None
        record = about(self.config, self.model, self.packed, device, stack, found, gpu) | found
        self.records[index] = plain(record) | {"id": self.store.append(record)}

    def _source(self, stack: Stack) -> str:
        return source_text(stack.variants, stack, self.model, self.config.threads).sha

    def _known(self) -> dict[int, Record]:
        """The newest record of every stack that is in the store already, except of those that were interrupted."""
        device, wanted = self.pool.describe(), plain(asked(self.config))
        rows = {
            row["key"]: row
            for row in self.store.rows()
            if row.get("kind") == "run" and row["status"] != "INTERRUPTED" and row.get("asked") == wanted
        }
        keys = (key_of(self._source(stack), stack, self.model, self.packed, device) for stack in self.config.stacks)
        return {index: rows[key] for index, key in enumerate(keys) if key in rows}


@contextmanager
def prepare(config: RunConfig, show: Progress) -> Iterator[Sweep]:
    """Store, weights and workers, which end with the block. Raises LabError for what no stack could run without."""
    store, (model, _, packed) = gather(config, show)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill`, or a queue that wants its machine back
    try:
        with Pool(request(config), places(config, model), config.timeout_s) as pool:
            yield Sweep(config, model, packed, store, show, pool, {})
    finally:
        signal.signal(signal.SIGTERM, before)


def places(config: RunConfig, model: Model) -> Sequence[Mapping[str, str]]:
    """The environment of each worker: one for a GPU, one for a core; one alone where a kernel takes all cores."""
    if config.device.name == "cuda":
        return [{"CUDA_VISIBLE_DEVICES": name} for name in _gpus()]
    cores = os.cpu_count() or 1
    workers = 1 if model.matrix_weights > LARGE else cores
    return [{"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(cores // workers)}] * workers


def _gpus() -> list[str]:
    """Names of the GPUs as CUDA_VISIBLE_DEVICES takes them."""
    from cupy.cuda import runtime

    count = runtime.getDeviceCount()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:count] if chosen else [str(ordinal) for ordinal in range(count)]

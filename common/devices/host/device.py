"""Host device: compiles the CUDA text as C++ and executes it on the CPU, with more checks than a GPU has.

See runtime/runtime.hpp for the execution model. Each buffer lies between inaccessible pages (host_memory.py), and the
weights are read-only: an access outside, or a write into the weights, ends the launch as Crashed with file, line and
stage. Memory that no kernel has written is NaN.
"""

import ctypes
import os
import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.compile.source import Source, launches
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.devices.counters import FIELDS, Counts
from common.devices.host.compiler import Compiler
from common.devices.host.lines import separate_places, with_lines
from common.devices.host.memory import GuardedBuffer
from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.errors import Crashed, Hung, Refused
from common.errors.machine import Vanished
from common.model.layout import MAX_BLOCKS, WAIT_WORDS
from common.model.stages import STAGES

# Source files in common/devices/host/runtime.
_NAMES = ("block", "bulk", "calls", "entries", "faults", "fences", "grid", "meetings", "memory")
UNITS = tuple(f"{name}.cpp" for name in _NAMES)
BLOCKS = 8  # default grid: enough blocks for an uneven share of heads and rows
FINISHED, DEADLOCKED, TIMED_OUT, TRAPPED, CORRUPTED, FAULTED = range(6)  # `Status` of runtime/runtime.hpp
_LAUNCHING = threading.Lock()  # a launch installs handlers of signals, and a process has one set of them
_STILL_RUNNING: list["HostSession"] = []  # timed out: their threads still use the library and the buffers


class Launch(ctypes.Structure):
    """`host::Launch` of runtime/machine.hpp, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weights", "cache", "scratch", "state", "waits")),
        ("bytes", ctypes.c_size_t * 5),  # of these buffers
        *((name, ctypes.c_int) for name in ("kernel", "last", "blocks", "workers")),
        ("seed", ctypes.c_uint64),
        ("timeout", ctypes.c_double),
        ("counts", ctypes.c_void_p),
        ("report", ctypes.c_char_p),
        ("report_size", ctypes.c_size_t),
    ]


@dataclass(frozen=True)
class HostProgram:
    """A shared library, or the executable of a sanitized build, and its source."""

    source: Source
    binary: Path


class HostDevice:
    """The CPU, as a device that compiles and runs kernels.

    cache: folder of compiled kernels. seed: determines the order of lanes, warps and blocks in the first launch of a
    session; each later launch uses the next seed. workers: blocks that run at the same time; None means all cores for a
    model that is large, and one for others (a run is then a function of the seed).
    timeout: limit of one launch in seconds; a deadlock is detected without it. flags: further options for g++.
    """

    name = "host"
    buffer = GuardedBuffer  # the class of a session's buffers

    def __init__(
        self,
        cache: Path,
        seed: int = 0,
        workers: int | None = None,
        timeout: float = 120.0,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.seed, self.workers, self.timeout, self._flags = seed, workers, timeout, flags
        self._compiler = Compiler(cache)
        self._weights: tuple[torch.Tensor, GuardedBuffer] | None = None

    def describe(self) -> dict[str, Any]:
        compiler = self._compiler.version()
        return {"device": self.name, "arch": platform.machine(), "cores": os.cpu_count(), "compiler": compiler}

    def compile(self, source: Source) -> HostProgram:
        """A program from the cache, compiled once per text, compiler and CPU. Raises CompileError."""
        objects = [self.kernel(source), self._compiler.runtime(UNITS)]
        return HostProgram(source, self._compiler.link(objects, ".so"))

    def kernel(self, source: Source) -> Path:
        """The object of the text alone. Raises CompileError."""
        return self._compiler.kernel(source.text, *self._flags, large=source.model.large)

    def session(
        self,
        program: HostProgram,
        weights: torch.Tensor,
        blocks: int | None = None,
        beside: "HostSession | None" = None,
    ) -> "HostSession":
        """As Device.session. The copy of the weights is shared by all sessions with these weights."""
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"blocks={blocks} is not in 1..{MAX_BLOCKS}", f"give blocks=N with N in 1..{MAX_BLOCKS}")
        if self._weights is None or self._weights[0] is not weights:
            guarded = self.buffer(program.source.layout.weights_size, torch.bfloat16, _at_end(self.seed))
            guarded.tensor.copy_(weights)
            guarded.freeze()
            self._weights = (weights, guarded)
        workers = self.workers or ((os.cpu_count() or 1) if program.source.model.large else 1)
        return self._open(program, self._weights[1], blocks, workers, self.seed, self.timeout, beside)

    def _open(self, *arguments: Any) -> "HostSession":
        return HostSession(*arguments)


class HostSession(Session):
    """One kernel and its buffers on the host device."""

    _buffers: dict[str, GuardedBuffer]

    def __init__(
        self,
        program: HostProgram,
        weights: GuardedBuffer,
        blocks: int,
        workers: int,
        seed: int,
        timeout: float,
        beside: "HostSession | None" = None,
    ) -> None:
        layout = self.layout = program.source.layout
        self.blocks = blocks
        self._source, self._workers, self._seed, self._timeout = program.source, workers, seed, timeout
        buffer = partial(type(weights), at_end=_at_end(seed))
        if beside:
            self._buffers = dict(beside._buffers)
            if beside.layout.scratch_size < layout.scratch_size:
                self._buffers["scratch"] = buffer(layout.scratch_size, torch.float32)
        else:
            self._buffers = {
                "weights": weights,
                "cache": buffer(layout.cache.size, torch.bfloat16),
                "scratch": buffer(layout.scratch_size, torch.float32),
                "state": buffer(layout.state_size, torch.int32),
                "waits": buffer(WAIT_WORDS * MAX_BLOCKS, torch.int32),
            }
        words = self._buffers["cache"].tensor.view(self.layout.cache.shape).view(torch.int16)
        self.cache = KvCache(words.numpy())
        self._counts = buffer(len(STAGES) * len(FIELDS), torch.int64)
        self._ran = False
        self._position = 0
        self._load(program.binary)

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        fill_scratch(self._buffers["scratch"].tensor, self.layout, unwritten)
        self._buffers["waits"].tensor.zero_()
        self._buffers["state"].tensor.copy_(state)
        self._position = int(state[self.layout.state["position"].offset])

    def run(self, steps: int = 1, then: "HostSession | None" = None) -> None:
        if then is not None:
            for _ in range(steps):
                self.run()
                then._run_launches([(0, 1)])
            return
        self.layout.check_room(self._position, steps)
        self._position += steps
        self._run_launches(launches(self._source, steps))

    def run_stage(self, stage: str, layer: int = 0) -> None:
        """Run one stage of one layer on the current buffers. The source must have a kernel per stage."""
        self._run_launches([(STAGES.index(stage), layer)])

    def write_scratch(self, values: torch.Tensor) -> None:
        """Overwrite scratch: float32, [layout.scratch_size]."""
        self._buffers["scratch"].tensor.copy_(values)

    def scratch(self) -> torch.Tensor:
        return self._buffers["scratch"].tensor.clone()

    def state(self) -> torch.Tensor:
        return self._buffers["state"].tensor.clone()

    def counts(self) -> Counts | None:
        if not self._ran:
            return None
        return Counts(self._counts.tensor.view(len(STAGES), len(FIELDS)).numpy().astype(np.uint64))

    def close(self) -> None:
        if self._timed_out:
            return
        handle = self._library._handle
        del self._library
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))

    def _load(self, binary: Path) -> None:
        self._binary, self._timed_out = binary, False
        try:
            self._library = ctypes.CDLL(str(binary))
        except OSError as error:
            if not binary.exists():
                raise Vanished(f"the kernel {binary} is gone: {error}", "give the command again") from error
            raise

    def _run_launches(self, these: Sequence[tuple[int, int]]) -> None:
        """Run `these` launches one after another, with their counts summed, and check the canaries.

        They are as `common.compile.source.launches` gives them. Raises Hung, and Crashed for a trap or a write outside
        a buffer.
        """
        self._counts.tensor.zero_()
        self._ran = True
        self._launch_all(these)
        if self._buffers["waits"].tensor.any():
            raise Crashed(
                "the kernel wrote into the words of blocks that wait, and none gave up",
                "look for an index far outside a buffer",
            )
        for name, buffer in self._buffers.items():
            if not buffer.intact():
                raise Crashed(f"the kernel wrote outside the {name} buffer", "look for an index outside this buffer")

    def _launch_all(self, these: Sequence[tuple[int, int]]) -> None:
        if self._timed_out:
            raise Crashed("an earlier launch of this session timed out and still runs", "start the run again")
        for kernel, last in these:
            report = ctypes.create_string_buffer(1 << 16)
            launch = Launch(
                *(buffer.tensor.data_ptr() for buffer in self._buffers.values()),
                (ctypes.c_size_t * 5)(*(buffer.bytes for buffer in self._buffers.values())),
                kernel,
                last,
                self.blocks,
                self._workers,
                self._seed,
                self._timeout,
                self._counts.tensor.data_ptr(),
                ctypes.cast(report, ctypes.c_char_p),
                len(report),
            )
            self._seed += 1
            with _LAUNCHING:
                status = self._library.lab_launch(ctypes.byref(launch))
            if status == TIMED_OUT:
                self._timed_out = True
                _STILL_RUNNING.append(self)
            self._raise_for_status(status, report.value.decode(errors="replace"))

    def _raise_for_status(self, status: int, report: str) -> None:
        """Raise the error for a `Status` of runtime/runtime.hpp; return if the launch finished."""
        if status == FINISHED:
            if found := separate_places(report, self._binary):
                raise Crashed(f"the kernel faulted: {found}", "let all of them reach the same one")
            return
        report = with_lines(report, self._binary)
        first = report.partition("\n")[0]
        if status == DEADLOCKED:
            raise Hung(f"deadlock, no block can continue: {first}", "make all threads reach the same barriers", report)
        if status == TIMED_OUT:
            raise Hung(
                f"still running after {self._timeout:g} s: {first}",
                "look for an endless loop there, or raise device.timeout_s",
                report,
            )
        if status == TRAPPED:
            raise_if_barrier_timed_out(self._buffers["waits"].tensor, self.blocks)
            raise Crashed(f"the kernel trapped: {report}", "correct the access or the condition at that line")
        if status == CORRUPTED:
            raise Crashed(report, "look for an index outside the struct Shared")
        if status == FAULTED:
            raise Crashed(f"the kernel faulted: {report}", "correct that line")


def _at_end(seed: int) -> bool:
    """Which end of a buffer touches its inaccessible pages: with an even seed the last byte."""
    return seed % 2 == 0

"""Host device: compiles the CUDA text as C++ and executes it on the CPU, with more checks than a GPU has.

See runtime/runtime.hpp for the execution model. Each buffer lies between two canaries, which are NaN in bf16 and in
fp32, so that a read outside the buffer is seen in the result. Memory that no kernel has written is NaN too.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.compile.source import Source, launches
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.devices.counters import FIELDS, Counts
from common.devices.host_compiler import Compiler
from common.errors import Crashed, Hung, Refused
from common.model.layout import MAX_BLOCKS, WAIT_WORDS, Layout
from common.model.stages import STAGES

UNITS = ("block.cpp", "calls.cpp", "grid.cpp")  # source files in common/devices/runtime
GUARD_BYTES = 4096  # canary on each side of a buffer
CANARY = 0xFFA5 - 0x10000  # as int16: 0xFFA5 is a NaN in bf16, and 0xFFA5FFA5 one in fp32
BLOCKS = 8  # default grid: enough blocks for an uneven share of heads and rows
DEADLOCKED, TIMED_OUT, TRAPPED, CORRUPTED = 1, 2, 3, 4  # `Status` of runtime/runtime.hpp

LaunchArguments = tuple[int, int, int]  # steps, stage, layer


class _Launch(ctypes.Structure):
    """`host::Launch` of runtime/machine.hpp, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weights", "cache", "scratch", "state", "waits")),
        *((name, ctypes.c_int) for name in ("steps", "stage", "layer", "blocks")),
        ("workers", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("timeout", ctypes.c_double),
        ("counts", ctypes.c_void_p),
        ("report", ctypes.c_char_p),
        ("report_size", ctypes.c_size_t),
    ]


class GuardedBuffer:
    """A tensor of `size` elements between two canaries of GUARD_BYTES."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        pad, words = GUARD_BYTES // 2, size * dtype.itemsize // 2
        self._raw = self._allocate(pad + words + pad)
        self._ends = (self._raw[:pad], self._raw[-pad:])
        for end in self._ends:
            end.fill_(CANARY)
        self.tensor = self._raw[pad : pad + words].view(dtype)

    def _allocate(self, words: int) -> torch.Tensor:
        return torch.empty(words, dtype=torch.int16)

    def intact(self) -> bool:
        return all(bool((end == CANARY).all()) for end in self._ends)


@dataclass(frozen=True)
class HostProgram:
    """A shared library, or the executable of a sanitized build, and its source."""

    source: Source
    binary: Path


class HostDevice:
    """The CPU, as a device that compiles and runs kernels.

    cache: folder of compiled kernels. seed: determines the order of lanes, warps and blocks in the first launch of a
    session; each later launch uses the next seed. workers: blocks that run at the same time; None means one for models
    with fewer than 10 million matrix weights (a run is then a function of the seed), and all cores for larger ones.
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
        return {"device": self.name, "arch": platform.machine(), "cores": os.cpu_count(), "compiler": self.compiler()}

    def compiler(self) -> str:
        """First line of `g++ --version`. Raises LabError when there is no g++."""
        return self._compiler.version()

    def compile(self, source: Source) -> HostProgram:
        """A program from the cache, compiled once per text, compiler and CPU. Raises CompileError."""
        objects = [self._compiler.kernel(source.text, *self._flags), *map(self._compiler.runtime, UNITS)]
        return HostProgram(source, self._compiler.link(objects, ".so"))

    def session(
        self, program: HostProgram, layout: Layout, weights: torch.Tensor, blocks: int | None = None
    ) -> "HostSession":
        """See common.devices.protocol.Device. The copy of the weights is shared by all sessions with these weights."""
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"blocks={blocks} is not in 1..{MAX_BLOCKS}", f"give blocks=N with N in 1..{MAX_BLOCKS}")
        if self._weights is None or self._weights[0] is not weights:
            guarded = self.buffer(layout.weights_size, torch.bfloat16)
            guarded.tensor.copy_(weights)
            self._weights = (weights, guarded)
        workers = self.workers or (1 if layout.model.matrix_weights < 10_000_000 else os.cpu_count() or 1)
        return self._open(program, layout, self._weights[1], blocks, workers, self.seed, self.timeout)

    def _open(self, *arguments: Any) -> "HostSession":
        return HostSession(*arguments)


class HostSession:
    """One kernel and its buffers on the host device; see common.devices.protocol.Session for the methods."""

    def __init__(
        self,
        program: HostProgram,
        layout: Layout,
        weights: GuardedBuffer,
        blocks: int,
        workers: int,
        seed: int,
        timeout: float,
    ) -> None:
        self.layout, self.blocks = layout, blocks
        self._source, self._workers, self._seed, self._timeout = program.source, workers, seed, timeout
        buffer = type(weights)
        self._buffers = {
            "weights": weights,
            "cache": buffer(layout.cache.size, torch.bfloat16),
            "scratch": buffer(layout.scratch_size, torch.float32),
            "state": buffer(layout.state_size, torch.int32),
            "waits": buffer(WAIT_WORDS * MAX_BLOCKS, torch.int32),
        }
        self._counts = buffer(len(STAGES) * len(FIELDS), torch.int64)
        self._ran = False
        self._position = 0
        self._load(program.binary)

    def reset(self, ids: Sequence[int], position: int, cache: torch.Tensor | None = None, forced: int = 0) -> None:
        history = self._buffers["cache"].tensor.view(self.layout.cache.shape)
        history.fill_(torch.nan)
        if cache is not None:
            history[..., :position, :] = cache[..., :position, :]
        self._buffers["scratch"].tensor.fill_(torch.nan)
        self._buffers["waits"].tensor.zero_()
        self._buffers["state"].tensor.copy_(self.layout.initial_state(ids, position, forced))
        self._position = position

    def run(self, steps: int = 1) -> None:
        self.layout.check_room(self._position, steps)
        self._position += steps
        if self._source.by_stage:
            return self._run_launches([(1, stage, layer) for stage, layer in launches(self._source)] * steps)
        most = self._source.tokens_per_launch
        return self._run_launches([(min(steps - done, most), 0, 0) for done in range(0, steps, most)])

    def run_stage(self, stage: str, layer: int = 0) -> None:
        """Run one stage of one layer on the current buffers. The source must have a kernel per stage."""
        self._run_launches([(1, STAGES.index(stage), layer)])

    def write_scratch(self, values: torch.Tensor) -> None:
        """Overwrite scratch: float32, [layout.scratch_size]."""
        self._buffers["scratch"].tensor.copy_(values)

    def write_cache(self, values: torch.Tensor) -> None:
        """Overwrite the cache: bf16, the layout's cache shape."""
        self._buffers["cache"].tensor.view(self.layout.cache.shape).copy_(values)

    def scratch(self) -> torch.Tensor:
        return self._buffers["scratch"].tensor.clone()

    def cache(self) -> torch.Tensor:
        return self._buffers["cache"].tensor.view(self.layout.cache.shape).clone()

    def state(self) -> torch.Tensor:
        return self._buffers["state"].tensor.clone()

    def counts(self) -> Counts | None:
        if not self._ran:
            return None
        return Counts(self._counts.tensor.view(len(STAGES), len(FIELDS)).numpy().astype(np.uint64))

    def close(self) -> None:
        if self._timed_out:
            return  # threads of the launch that timed out may still execute this library's code
        handle = self._library._handle
        del self._library
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))

    def _load(self, binary: Path) -> None:
        self._library, self._timed_out = ctypes.CDLL(str(binary)), False

    def _run_launches(self, launch_arguments: Sequence[LaunchArguments]) -> None:
        """Run the launches one after another, with their counts summed, and check the canaries.

        Raises Hung, and Crashed for a trap or a write outside a buffer.
        """
        self._counts.tensor.zero_()
        self._ran = True
        self._launch_all(launch_arguments)
        for name, buffer in self._buffers.items():
            if not buffer.intact():
                raise Crashed(f"the kernel wrote outside the {name} buffer", "look for an index outside this buffer")

    def _launch_all(self, launch_arguments: Sequence[LaunchArguments]) -> None:
        if self._timed_out:
            raise Crashed("an earlier launch of this session timed out and still runs", "start the run again")
        for steps, stage, layer in launch_arguments:
            report = ctypes.create_string_buffer(1 << 16)
            launch = _Launch(
                *(buffer.tensor.data_ptr() for buffer in self._buffers.values()),
                steps,
                stage,
                layer,
                self.blocks,
                self._workers,
                self._seed,
                self._timeout,
                self._counts.tensor.data_ptr(),
                ctypes.cast(report, ctypes.c_char_p),
                len(report),
            )
            self._seed += 1
            status = self._library.lab_launch(ctypes.byref(launch))
            self._timed_out = status == TIMED_OUT
            self._raise_for_status(status, report.value.decode(errors="replace"))

    def _raise_for_status(self, status: int, report: str) -> None:
        """Raise the error for a `Status` of runtime/runtime.hpp; return if the launch finished."""
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

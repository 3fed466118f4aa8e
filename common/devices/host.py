"""The host device: the CUDA text compiled as C++ and executed on the CPU, stricter than a GPU.

See common/host/runtime.hpp for the execution model. Every buffer lies between canaries that are NaN in bf16 and in
fp32; what a kernel has not written is NaN too.
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

from common.counters import FIELDS, Counts
from common.devices.compiler import Compiler
from common.devices.waiting import raise_if_gave_up
from common.errors import Crashed, Hung, Refused
from common.layout import MAX_BLOCKS, WAIT_WORDS, Layout
from common.model import STAGES
from common.source import Source, launches

UNITS = ("block.cpp", "calls.cpp", "grid.cpp")  # of the runtime, in common/host
GUARD = 4096  # bytes of canary on each side of a buffer
CANARY = 0xFFA5 - 0x10000  # as int16; 0xFFA5 is NaN as bf16, and NaN as fp32 when repeated
BLOCKS = 8  # default grid: enough blocks that heads and rows are spread unevenly
STUCK, TIMED_OUT, TRAPPED, CORRUPTED = 1, 2, 3, 4

Order = tuple[int, int, int]  # of one launch: steps, stage, layer


class _Launch(ctypes.Structure):
    """`host::Launch` of common/host/machine.hpp."""

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


class Guarded:
    """A tensor between two canaries."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        pad, words = GUARD // 2, size * dtype.itemsize // 2
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
    """A shared library, or the program of a sanitized build, and the source it was made from."""

    source: Source
    binary: Path


class HostDevice:
    """Compiles and runs kernels on the CPU.

    seed: of the order in which lanes, warps and blocks run; each launch of a session draws the next order from it.
    workers: blocks that run at the same time; None takes one for small models, where every run is then a function of
    the seed, and all cores for models of over 10 million weights. timeout: seconds until a launch that never waits is
    given up (one that waits in vain is found out at once). cache: the folder of compiled kernels. flags: for g++, to
    come after those of common/devices/compiler.py.
    """

    name = "host"
    buffer = Guarded  # what sessions keep their data in

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
        self._weights: tuple[torch.Tensor, Guarded] | None = None

    def describe(self) -> dict[str, Any]:
        return {"device": self.name, "arch": platform.machine(), "cores": os.cpu_count(), "compiler": self.compiler()}

    def compiler(self) -> str:
        """First line of `g++ --version`. Raises LabError when there is no g++."""
        return self._compiler.version()

    def compile(self, source: Source) -> HostProgram:
        """Compiled once per text, compiler and CPU. Raises CompileError."""
        objects = [self._compiler.kernel(source.text, *self._flags), *map(self._compiler.runtime, UNITS)]
        return HostProgram(source, self._compiler.link(objects, ".so"))

    def session(
        self, program: HostProgram, layout: Layout, weights: torch.Tensor, blocks: int | None = None
    ) -> "HostSession":
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"a grid of {blocks} blocks", f"choose 1 to {MAX_BLOCKS} blocks")
        if self._weights is None or self._weights[0] is not weights:
            guarded = self.buffer(layout.weights_size, torch.bfloat16)
            guarded.tensor.copy_(weights)
            self._weights = (weights, guarded)
        workers = self.workers or (1 if layout.model.matrix_weights < 10_000_000 else os.cpu_count() or 1)
        return self._open(program, layout, self._weights[1], blocks, workers, self.seed, self.timeout)

    def _open(self, *arguments: Any) -> "HostSession":
        return HostSession(*arguments)


class HostSession:
    """One compiled kernel and its buffers on the host device; the verbs are those of common.devices.Session."""

    def __init__(
        self,
        program: HostProgram,
        layout: Layout,
        weights: Guarded,
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
            return self._perform([(1, stage, layer) for stage, layer in launches(self._source)] * steps)
        most = self._source.tokens_per_launch
        return self._perform([(min(steps - done, most), 0, 0) for done in range(0, steps, most)])

    def run_stage(self, stage: str, layer: int = 0) -> None:
        """One stage of one layer on the buffers as they are; the source must have been built by stage."""
        self._perform([(1, STAGES.index(stage), layer)])

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
        if self._lost:
            return  # threads of a launch that was given up may still run this library's code
        handle = self._library._handle
        del self._library
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))

    def _load(self, binary: Path) -> None:
        self._library, self._lost = ctypes.CDLL(str(binary)), False

    def _perform(self, orders: Sequence[Order]) -> None:
        """Launch after launch, counted together; then see that nothing was written outside the buffers."""
        self._counts.tensor.zero_()
        self._ran = True
        self._launch(orders)
        for name, buffer in self._buffers.items():
            if not buffer.intact():
                raise Crashed(f"the kernel wrote outside the {name} buffer", "look for an index beyond its end")

    def _launch(self, orders: Sequence[Order]) -> None:
        if self._lost:
            raise Crashed("the session was given up after a launch that never ended", "start the run again")
        for steps, stage, layer in orders:
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
            self._lost = status == TIMED_OUT
            self._judge(status, report.value.decode(errors="replace"))

    def _judge(self, status: int, report: str) -> None:
        """Raise what the runtime's status (of common/host/runtime.hpp) means."""
        if status == STUCK:
            raise Hung("nobody can go on", "see the report: who waits where", report)
        if status == TIMED_OUT:
            raise Hung(f"still running after {self._timeout:g} s", "see the report, or raise device.timeout_s", report)
        if status == TRAPPED:
            raise_if_gave_up(self._buffers["waits"].tensor, self.blocks)
            raise Crashed(f"the kernel trapped: {report}", "see the place it names")
        if status == CORRUPTED:
            raise Crashed(report, "look for an index beyond the struct Shared")

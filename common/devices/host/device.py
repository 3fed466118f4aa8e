"""Host device: compiles the CUDA text as C++ and executes it on the CPU, with more checks than a GPU has.

See runtime/runtime.hpp for the execution model, common/devices/cpu.py for the buffers.
"""

import ctypes
import os
import platform
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.compile.source import Source
from common.devices.counters import FIELDS, Counts
from common.devices.cpu import FINISHED, TIMED_OUT, CpuDevice, CpuSession
from common.devices.host.compiler import Compiler
from common.devices.host.lines import separate_places, with_lines
from common.errors import Crashed
from common.errors.machine import Vanished
from common.model.stages import STAGES

# Source files in common/devices/host/runtime.
_NAMES = ("block", "bulk", "calls", "entries", "faults", "grid", "meetings", "memory")
UNITS = tuple(f"{name}.cpp" for name in _NAMES)
_LAUNCHING = threading.Lock()  # a launch installs signal handlers, and a process has one set of them
_STILL_RUNNING: list["HostSession"] = []  # timed out: their threads still use the library and the buffers


class Launch(ctypes.Structure):
    """`host::Launch` of runtime/machine.hpp, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weights", "cache", "scratch", "state", "waits")),
        ("bytes", ctypes.c_size_t * 5),  # sizes of these buffers
        *((name, ctypes.c_int) for name in ("kernel", "last", "blocks", "workers")),
        ("seed", ctypes.c_uint64),
        ("timeout", ctypes.c_double),
        ("counts", ctypes.c_void_p),
        ("report", ctypes.c_char_p),
        ("report_size", ctypes.c_size_t),
    ]


@dataclass(frozen=True)
class HostProgram:
    """A shared library and its source."""

    source: Source
    binary: Path


class HostDevice(CpuDevice):
    """The CPU, as a device that compiles the CUDA text by g++.

    workers: blocks that run at the same time; None: all cores for a large model, one for others (a run is then a
    function of the seed). flags: further options for g++.
    """

    name = "host"

    def __init__(
        self,
        cache: Path,
        seed: int = 0,
        workers: int | None = None,
        timeout: float = 120.0,
        flags: tuple[str, ...] = (),
    ) -> None:
        super().__init__(cache, seed, timeout)
        self.workers, self._flags = workers, flags
        self._compiler = Compiler(cache)

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

    def _open(self, *arguments: Any) -> "HostSession":
        return HostSession(*arguments)


class HostSession(CpuSession):
    """One kernel and its buffers on the host device."""

    def __init__(self, device: HostDevice, program: HostProgram, *rest: Any) -> None:
        super().__init__(device, program, *rest)
        self._workers = device.workers or ((os.cpu_count() or 1) if self._source.model.large else 1)
        self._counts = torch.zeros(len(STAGES), len(FIELDS), dtype=torch.int64)
        self._load(program.binary)

    def count(self, steps: int = 1) -> Counts:
        self.run(steps)
        return self.counts()

    def counts(self) -> Counts:
        """Counts of the last run."""
        return Counts(self._counts.numpy().astype(np.uint64))

    def run_stage(self, stage: str, layer: int = 0) -> None:
        """Run one stage of one layer on the current buffers. The source must have a kernel per stage."""
        self._run_launches([(STAGES.index(stage), layer)])

    def write_scratch(self, values: torch.Tensor) -> None:
        """Overwrite scratch: float32, [layout.scratch_size]."""
        self._buffers["scratch"].tensor.copy_(values)

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

    def _launch_all(self, these: Sequence[tuple[int, int]]) -> None:
        if self._timed_out:
            raise Crashed("an earlier launch of this session timed out and still runs", "start the run again")
        self._counts.zero_()
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
                self._counts.data_ptr(),
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
        """As CpuSession's, for a report with addresses of the binary."""
        if status == FINISHED:
            if found := separate_places(report, self._binary):
                raise Crashed(f"the kernel faulted: {found}", "make all of them reach the same place")
            return
        super()._raise_for_status(status, with_lines(report, self._binary))

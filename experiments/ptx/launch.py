"""One launch of a kernel of a CUDA or PTX file on the executor of common/devices/ptx."""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from common.compile.nvrtc import ARCHS, compile_ptx
from common.devices.cpu import DEADLOCKED, FAULTED, FINISHED, RACED, TIMED_OUT, TRAPPED
from common.devices.ptx.device import with_lines
from common.devices.ptx.program import Buffer, Options, PtxKernel
from common.devices.ptx.text import Kernel, Module, demangled
from common.errors import LabError, known
from experiments.ptx.arguments import Argument, text_in

T = TypeVar("T")
ENDS = {
    FINISHED: "finished",
    DEADLOCKED: "deadlock: no thread can go on",
    TIMED_OUT: "not finished in time",
    TRAPPED: "trap",
    FAULTED: "fault",
    RACED: "race",
}


@dataclass(frozen=True)
class Outcome:
    """End of a launch in words, its report with source lines, and the arrays that have changed."""

    finished: bool
    end: str
    report: str
    written: tuple[Argument, ...]


@dataclass(frozen=True)
class Launch:
    """One launch. shared: bytes of dynamic shared memory; seed: of every order; timeout: in seconds."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    seed: int
    races: bool
    timeout: float

    def __str__(self) -> str:
        return f"{self.blocks} block{'s'[: self.blocks != 1]} of {math.prod(self.block)} threads"

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    def run(self, kernel: PtxKernel, parameters: bytes, given: Sequence[Argument]) -> Outcome:
        """Run a kernel to its end. Raises LabError for sizes that do not fit."""
        arrays = [one for one in given if one.is_array]
        buffers = [Buffer(one.name, one.bits.ctypes.data, one.bits.nbytes) for one in arrays]
        before = [one.bits.tobytes() for one in arrays]
        self._check_memory(kernel)
        options = Options(self.seed, True, self.races, self.timeout)
        ended = _aside(partial(kernel.launch, self.grid, self.block, parameters, buffers, self.shared, options))
        written = tuple(one for one, old in zip(arrays, before, strict=True) if one.bits.tobytes() != old)
        report = with_lines(ended.report, kernel).strip()
        return Outcome(ended.status == FINISHED, ENDS[ended.status], report, written)

    def _check_memory(self, kernel: PtxKernel) -> None:
        """Raise LabError if registers of all blocks, resident at once, need more than half of the memory."""
        warps = self.blocks * -(-math.prod(self.block) // 32)
        own = kernel.decoded.file_bytes + 32 * kernel.decoded.local_bytes
        needed = warps * own + self.blocks * (kernel.decoded.shared_bytes + self.shared)
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        if needed > half:
            raise LabError(
                f"{self.blocks} blocks need {needed / 1e9:.1f} GB for registers and shared memory, and half of this "
                f"machine's memory is {half / 1e9:.1f} GB",
                "launch fewer blocks: all of them are there at once",
            )


def _aside(work: Callable[[], T]) -> T:
    """The result of `work` in a thread, so that an interrupt does not wait for the end of a kernel."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except LabError as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result()


def text_of(file: Path, arch: str, cache: Path) -> str:
    """The PTX of a file, compiled if it is a .cu. Raises LabError."""
    if file.suffix not in (".cu", ".ptx"):
        raise LabError(f"{file.name} is neither a .cu nor a .ptx file", "give CUDA text or PTX under such a name")
    text = text_in(file, "give the path of a .cu or .ptx file")
    return compile_ptx(text, known("arch", arch, ARCHS), name_of(file), cache) if file.suffix == ".cu" else text


def name_of(file: Path) -> str:
    """Name of the file in reports."""
    return os.path.relpath(file)


def kernel_of(module: Module, name: str | None, file: Path) -> Kernel:
    """A kernel by its name, mangled or not; the only one without a name. Raises LabError."""
    kernels = module.kernels
    found = [each for each in kernels if name is None or name in (each, demangled(each))]
    if len(found) == 1:
        return kernels[found[0]]
    cause = f"{file.name} has {len(found) or 'no'} kernels" + (f" named {name}" if name else "")
    raise LabError(
        cause, f"give kernel=NAME: {', '.join(found or kernels)}" if kernels else "give a file with a kernel"
    )

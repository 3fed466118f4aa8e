"""One launch of a kernel, and its end on the executor of common/devices/ptx."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import TypeVar

import numpy as np

from common.devices.ptx.counted import bytes_of
from common.devices.ptx.program import Buffer, Machine, Options, PtxKernel, PtxProgram
from common.devices.ptx.report import DEADLOCKED, FAULTED, FINISHED, RACED, TIMED_OUT, TRAPPED, with_lines
from common.devices.ptx.text import Kernel
from common.errors import LabError
from experiments.ptx.arguments import Given
from experiments.ptx.elements import half_of_memory
from experiments.ptx.kernels import Text, decoded

T = TypeVar("T")
ENDS = {
    FINISHED: "finished",
    DEADLOCKED: "deadlock: no thread can go on",
    TIMED_OUT: "not finished in time",
    TRAPPED: "trap",
    FAULTED: "fault",
    RACED: "race",
}
MOST = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}  # CUDA's limits
STORES = ("st", "atom", "red")


@dataclass(frozen=True)
class Outcome:
    """End of a launch in words, its report with source lines, and what is known of the rest.

    stored: names of arrays that a store has hit, before the end; without counts of those that it has changed.
    counts: by name, {} where none were wanted, and on a GPU.
    seconds: of one launch, None without a GPU. lost: no later launch of this process can succeed.
    """

    finished: bool
    end: str
    report: str
    stored: frozenset[str]
    counts: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    lost: bool = False


@dataclass(frozen=True)
class Launch:
    """One launch.

    shared: bytes of dynamic shared memory; seed: of every order; timeout: in seconds; counts: wanted, which takes time.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    seed: int
    races: bool
    timeout: float
    counts: bool = False

    def __str__(self) -> str:
        return f"{self.blocks} block{'s'[: self.blocks != 1]} of {self.threads} threads"

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


class Executor:
    """The device ptx: this machine's CPU. arch: for which a .cu is compiled unless a launch says another."""

    title, arch = "", "sm_90"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def run(self, text: Text, ptx: str, parsed: Kernel, given: Given, launch: Launch) -> Outcome:
        """Run a kernel to its end. Raises LabError for sizes that do not fit, and CompileError."""
        kernel = decoded(PtxProgram(self._machine, ptx, text.name), parsed)
        addresses = {one.name: one.bits.ctypes.data for one in given.arrays}
        parameters = given.placed(addresses, parsed)
        buffers = [Buffer(one.name, addresses[one.name], one.bits.nbytes) for one in given.arrays]
        _check_memory(kernel, launch)
        options = Options(launch.seed, True, launch.races, launch.timeout, launch.counts)
        before = {} if launch.counts else _digests(given)
        ended = _aside(partial(kernel.launch, launch.grid, launch.block, parameters, buffers, launch.shared, options))
        end = ended.status == FINISHED, ENDS[ended.status], with_lines(ended.report, kernel).strip()
        if ended.executed is None:
            return Outcome(*end, frozenset(name for name, digest in _digests(given).items() if digest != before[name]))
        opcodes, names = kernel.opcodes(), [one.name for one in buffers]
        counts = counted(opcodes, ended.executed, launch.blocks * launch.threads)
        return Outcome(*end, stored(opcodes, ended.executed, names), counts)


def _digests(given: Given) -> dict[str, bytes]:
    return {one.name: hashlib.blake2b(np.ascontiguousarray(one.bits).data).digest() for one in given.arrays}


def stored(opcodes: Sequence[str], executed: np.ndarray, buffers: Sequence[str]) -> frozenset[str]:
    """Names of the buffers that a store or an atomic has hit, whether it changed a byte or not."""
    hit = executed[[opcode.partition(".")[0] in STORES for opcode in opcodes]].sum(axis=0)[1:]
    return frozenset(name for name, count in zip(buffers, hit.tolist(), strict=False) if count)


def counted(opcodes: Sequence[str], executed: np.ndarray, threads: int) -> dict[str, float]:
    """Counts of a launch: instructions of threads, bytes by memory, and barriers that a thread meets."""
    found = Counter[str]()
    for opcode, (bare, *by_buffer, _) in zip(opcodes, executed.tolist(), strict=True):
        first, *words = opcode.split(".")
        if first == "cp":
            found["loaded B"] += sum(by_buffer)
            continue
        found["instructions"] += bare + sum(by_buffer)
        if first in ("bar", "barrier"):
            found["barriers"] += bare
        elif first in ("ld", *STORES):
            size = bytes_of(opcode)
            found["loaded B" if first == "ld" else "stored B"] += size * sum(by_buffer)
            if not {"local", "const"} & {*words}:
                found["shared B"] += size * bare
    names = ("instructions", "loaded B", "stored B", "shared B")
    return {name: found[name] for name in names} | {"barriers": round(found["barriers"] / threads, 2)}


def sizes(key: str, given: tuple[int, ...]) -> tuple[int, int, int]:
    """`grid` or `block` with three dimensions. Raises LabError beyond CUDA's limits."""
    if len(given) > 3:
        raise LabError(f"{key}={list(given)} has {len(given)} dimensions", "give at most three")
    for size, most in zip(given, MOST[key], strict=False):
        if size > most:
            raise LabError(f"{key}={list(given)} is beyond CUDA's limits", f"give at most {list(MOST[key])}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _check_memory(kernel: PtxKernel, launch: Launch) -> None:
    """Raise LabError if registers of all blocks, resident at once, need more than half of the memory."""
    warps = launch.blocks * -(-launch.threads // 32)
    own = kernel.decoded.file_bytes + 32 * kernel.decoded.local_bytes
    needed = warps * own + launch.blocks * (kernel.decoded.shared_bytes + launch.shared)
    if needed > half_of_memory():
        raise LabError(
            f"{launch.blocks} blocks need {needed / 1e9:.1f} GB for registers and shared memory, and half of this "
            f"machine's memory is {half_of_memory() / 1e9:.1f} GB",
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

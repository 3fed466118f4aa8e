"""One launch of a kernel on the executor of common/devices/ptx, and its result."""

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np

from common.devices.ptx.counted import bytes_of
from common.devices.ptx.program import Buffer, Ended, Machine, Options, PtxKernel, PtxProgram
from common.devices.ptx.report import with_lines
from common.errors import LabError
from experiments.ptx.arguments import given
from experiments.ptx.elements import half_of_memory
from experiments.ptx.kernels import kernel_of, ptx_of
from experiments.ptx.launch_file import Settings
from experiments.ptx.shown import Result

MOST = {"grid": (2**31 - 1, 65535, 65535), "block": (1024, 1024, 64)}  # CUDA's limits
LOADS = ("ld.", "ldmatrix.", "wmma.load.")
STORES = ("st.", "stmatrix.", "atom.", "red.", "wmma.store.")


def launched(machine: Machine, one: Settings, out: Path | None) -> Result:
    """Run a kernel to its end. out: a folder for the arrays that it has written. Raises LabError, and CompileError."""
    grid, block = _sizes("grid", one.grid), _sizes("block", one.block)
    blocks, threads = math.prod(grid), math.prod(block)
    passed = given(one.arguments, one.arrays, one.seed, one.folder)
    for each in passed.arrays:
        if out and each.expected and each.expected.file.resolve() == (out / f"{each.name}.npy").resolve():
            raise LabError(f"out={out} would overwrite {each.name}.npy, which is expected", "give another folder")
    program = PtxProgram(machine, ptx_of(one), os.path.relpath(one.file))
    parsed = kernel_of(program.module, one.kernel, one.file)
    parameters = passed.placed(parsed)
    kernel = program.kernel(parsed.name)
    _check_memory(kernel, blocks, threads, one.shared)
    buffers = [Buffer(each.name, each.bits.ctypes.data, each.bits.nbytes) for each in passed.arrays]
    options = Options(one.seed, True, one.races, one.timeout_s, counts=True, patience=0)
    ended = _aside(partial(kernel.launch, grid, block, parameters, buffers, one.shared, options))
    assert ended.executed is not None
    opcodes = kernel.opcodes()
    result = Result(
        f"{parsed.name}, {blocks} block{'s'[: blocks != 1]} of {threads} threads, {program.module.target}, "
        f"seed {one.seed}",
        {"kernel": parsed.name, "seed": one.seed},
        passed,
        ended.status,
        with_lines(ended.report, kernel).strip(),
        stored(opcodes, ended.executed, [each.name for each in passed.arrays]),
        counted(opcodes, ended.executed, blocks * threads),
    )
    if out:
        result.save(out)
    return result


def stored(opcodes: Sequence[str], executed: np.ndarray, buffers: Sequence[str]) -> frozenset[str]:
    """Names of the buffers that a store or an atomic has hit, whether it changed a byte or not."""
    hit = executed[[opcode.startswith(STORES) for opcode in opcodes]].sum(axis=0)[1:]
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
        elif opcode.startswith((*LOADS, *STORES)):
            size = bytes_of(opcode)
            found["loaded B" if opcode.startswith(LOADS) else "stored B"] += size * sum(by_buffer)
            if not {"local", "const", "param"} & {*words}:
                found["shared B"] += size * bare
    names = ("instructions", "loaded B", "stored B", "shared B")
    return {name: found[name] for name in names} | {"barriers": round(found["barriers"] / threads, 2)}


def _sizes(key: str, given: tuple[int, ...]) -> tuple[int, int, int]:
    """`grid` or `block` with three dimensions. Raises LabError beyond CUDA's limits."""
    if len(given) > 3 or any(size > most for size, most in zip(given, MOST[key], strict=False)):
        raise LabError(f"{key}={list(given)} is beyond CUDA's limits", f"give at most {list(MOST[key])}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _check_memory(kernel: PtxKernel, blocks: int, threads: int, shared: int) -> None:
    """Raise LabError if registers of all blocks, resident at once, need more than half of the memory."""
    own = kernel.decoded.file_bytes + 32 * kernel.decoded.local_bytes
    needed = blocks * (-(-threads // 32) * own + kernel.decoded.shared_bytes + shared)
    if needed > half_of_memory():
        raise LabError(
            f"{blocks} blocks need {needed / 1e9:.1f} GB for registers and shared memory, and half of this "
            f"machine's memory is {half_of_memory() / 1e9:.1f} GB",
            "launch fewer blocks: all of them are there at once",
        )


def _aside(work: Callable[[], Ended]) -> Ended:
    """The result of `work` in a thread, so that an interrupt does not wait for the end of a kernel."""
    future: Future[Ended] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # any: without a result `future` would be waited for without end
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future.result()

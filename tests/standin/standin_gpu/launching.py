"""Launch of a kernel: its arguments against its C signature, its grid against the driver's limits, its execution."""

import re
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int32, c_int64, c_uint32, c_uint64
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from standin_gpu import cost, errors, faults
from standin_gpu.compiling import Needs, Parameter
from standin_gpu.device import BLOCK_THREADS, MULTIPROCESSORS, OPTIN_SHARED, REGISTERS, STATIC_SHARED, resident_blocks
from standin_gpu.errors import CUDADriverError
from standin_gpu.executing import Size, execute
from standin_gpu.machine import MACHINE, misuse
from standin_gpu.memory import Buffer
from standin_gpu.probes import PROBES
from standin_gpu.streams import Queue

from common.devices.ptx.program import Buffer as PtxBuffer

SCALARS = {"int": "int32", "unsigned": "uint32", "float": "float32", "double": "float64"}
SCALARS |= {"size_t": "uint64", "unsigned long long": "uint64", "long long": "int64"}
CTYPES = {
    "int32": c_int32,
    "uint32": c_uint32,
    "float32": c_float,
    "float64": c_double,
    "uint64": c_uint64,
    "int64": c_int64,
}
ELEMENTS = {"float": ("f", 4), "bf16": ("iu", 2), "int": ("iu", 4), "unsigned": ("iu", 4)}
ELEMENTS |= {"unsigned long long": ("iu", 8), "uint4": ("iu", 4)}
ALIGNMENT = {"uint4": 16}
LAB = re.compile(r"^constexpr int block_threads = (\d+);\nconstexpr int loader_warps = (\d+);", re.MULTILINE)
WHOLE = "decode"  # the kernel whose blocks wait for each other
RESULTS = ("scratch", "result", "loaded")  # the parameters in which a wrong launch leaves a wrong bit


@dataclass(eq=False)
class Kernel:
    """A loaded kernel. dynamic_shared: what its block may use, `allowed` by cuFuncSetAttribute.

    lab: threads of a block that compute and loader warps, for which a kernel of the lab is compiled.
    """

    name: str
    text: str
    ptx: str
    needs: Needs
    dynamic_shared: int = STATIC_SHARED
    allowed: bool = False
    launches: int = 0
    fault: faults.Fault | None = field(init=False)
    lab: tuple[int, int] | None = field(init=False)

    def __post_init__(self) -> None:
        self.fault, lab = faults.fault_of(self.text), LAB.search(self.text)
        self.lab = (int(lab[1]), int(lab[2])) if lab else None
        if self.fault and self.fault.kind == "oom":
            MACHINE.memory_gone = True

    def broken(self, *kinds: str) -> bool:
        """True if this launch, which has been counted, has a fault of these kinds."""
        return self.fault is not None and self.fault.kind in kinds and self.launches >= self.fault.first

    @property
    def max_threads(self) -> int:
        """Threads of a block that the registers of a multiprocessor allow."""
        warps = REGISTERS // (-(-self.needs.registers * 32 // 256) * 256)
        return min(BLOCK_THREADS, 32 * warps)

    def occupancy(self, threads: int, dynamic: int) -> int:
        if threads > self.max_threads:
            return 0
        return resident_blocks(self.needs.registers, threads, self.needs.shared + dynamic)

    @property
    def most_shared(self) -> int:
        """Bytes of a block, static and dynamic; what cuFuncSetAttribute allows is dynamic."""
        return max(STATIC_SHARED, self.dynamic_shared + self.needs.shared if self.allowed else 0)

    def allow_shared(self, size: int) -> None:
        """cuFuncSetAttribute of the dynamic shared memory."""
        if not 0 <= size <= OPTIN_SHARED - self.needs.shared:
            raise CUDADriverError(errors.INVALID_VALUE)
        self.dynamic_shared, self.allowed = size, True


@dataclass(frozen=True)
class Argument:
    """One argument: its bits, its buffer if it is an address, and its array if it came as one."""

    bits: int
    buffer: Buffer | None = None
    array: np.ndarray | None = None


def launch(kernel: Kernel, grid: Size, block: Size, args: Any, shared: int, on: Queue) -> None:
    """Queue one launch. Raises CUDADriverError as cuLaunchKernel does, Misuse for wrong arguments."""
    MACHINE.call(CUDADriverError, cost.LAUNCH_CALL)
    blocks, threads = prod(grid), prod(block)
    kernel.launches += 1
    if kernel.broken("blocked"):
        faults.block_in_c()
    if not blocks or threads > BLOCK_THREADS or shared + kernel.needs.shared > kernel.most_shared:
        raise CUDADriverError(errors.INVALID_VALUE)
    if threads > kernel.max_threads:
        raise CUDADriverError(errors.OUT_OF_RESOURCES)
    found = _arguments(kernel, args)
    if kernel.lab and threads != (compiled := kernel.lab[0] + 32 * kernel.lab[1]):
        raise misuse(f"{kernel.name} is compiled for blocks of {compiled} threads, not {threads}")
    uses = [(p, a.buffer) for p, a in zip(kernel.needs.parameters, found, strict=True) if a.buffer]
    reads = [buffer for parameter, buffer in uses if not parameter.written]
    writes = [buffer for parameter, buffer in uses if parameter.written]

    def act() -> float:
        seconds = _act(kernel, found, grid, block, shared, on)
        if kernel.broken("wrong"):
            for parameter, buffer in uses:
                buffer.bytes[0] ^= parameter.name in RESULTS
        return seconds

    MACHINE.queue(on, kernel.name, reads, writes, act)


def from_memory(kernel: Kernel, parameters: Sequence[int]) -> list[np.generic]:
    """The arguments of a launch from the addresses of their values, by the C signature."""
    types = [SCALARS.get(parameter.type, "uint64") for parameter in kernel.needs.parameters]
    return [
        np.ctypeslib.as_array((CTYPES[kind] * 1).from_address(at))[0]
        for kind, at in zip(types, parameters, strict=True)
    ]


def _arguments(kernel: Kernel, args: Any) -> list[Argument]:
    wanted = kernel.needs.parameters
    if len(args) != len(wanted):
        raise misuse(f"{kernel.name} takes {len(wanted)} arguments, not {len(args)}: CuPy passes what it is given")
    return [_argument(kernel, parameter, given) for parameter, given in zip(wanted, args, strict=True)]


def _argument(kernel: Kernel, parameter: Parameter, given: Any) -> Argument:
    what = f"{kernel.name}: {parameter.type} {parameter.name}"
    if parameter.type.endswith("*"):
        return _address(what, parameter.type.removesuffix("*").strip(), given)
    if not isinstance(given, np.generic) or given.dtype.name != SCALARS[parameter.type]:
        kind = given.dtype.name if isinstance(given, np.generic) else type(given).__name__
        raise misuse(f"{what} needs a numpy scalar {SCALARS[parameter.type]}, not {kind}: CuPy passes its raw bits")
    return Argument(given.item())


def _address(what: str, element: str, given: Any) -> Argument:
    """An array with elements that suit the C type, or a uint64 that is an address of living memory."""
    if isinstance(given, np.uint64):
        buffer = MACHINE.buffer_at(int(given))
        if buffer is None:
            raise misuse(f"{what}: the address {int(given):#x} is in no living buffer")
        return Argument(int(given), buffer)
    array = getattr(given, "_array", None)
    if array is None:
        raise misuse(f"{what} needs an array of the GPU or a numpy.uint64, not {type(given).__name__}")
    kinds, size = ELEMENTS.get(element, ("iuf", array.dtype.itemsize))
    if array.dtype.kind not in kinds or array.dtype.itemsize != size:
        raise misuse(f"{what} is given an array of {array.dtype}")
    address = array.ctypes.data
    if address % ALIGNMENT.get(element, array.dtype.itemsize):
        raise misuse(f"{what} is given an address that is not aligned")
    return Argument(address, given._buffer, array)


def _act(kernel: Kernel, found: Sequence[Argument], grid: Size, block: Size, shared: int, on: Queue) -> float:
    """Execute the launch now, and let its failure be found by the next wait. Returns its seconds."""
    if MACHINE.pending or kernel.broken("trap", "lost"):
        MACHINE.pending = MACHINE.pending or errors.LAUNCH_FAILED
        if kernel.broken("lost"):
            MACHINE.pending = errors.UNKNOWN
            faults.lose()
        return cost.LAUNCH
    if kernel.broken("hang"):
        on.endless = True
        return cost.LAUNCH
    if kernel.name in PROBES:
        return PROBES[kernel.name](*(a.bits if a.array is None else a.array for a in found))
    threads = prod(block)
    if kernel.name == WHOLE and prod(grid) > kernel.occupancy(threads, shared) * MULTIPROCESSORS:
        MACHINE.pending = errors.LAUNCH_FAILED  # blocks that run wait for others, and give up
        return cost.LAUNCH
    buffers = [
        PtxBuffer(parameter.name, argument.bits, argument.buffer.end - argument.bits, parameter.written)
        for parameter, argument in zip(kernel.needs.parameters, found, strict=True)
        if argument.buffer
    ]
    computing = kernel.lab[0] if kernel.lab else threads
    return execute(kernel.ptx, on, kernel.name, grid, block, shared, _packed(kernel, found), buffers, computing)


def _packed(kernel: Kernel, found: Sequence[Argument]) -> bytes:
    """The block of parameters."""
    block = b""
    for parameter, argument in zip(kernel.needs.parameters, found, strict=True):
        value = np.array(argument.bits, SCALARS.get(parameter.type, "uint64")).tobytes()
        block += bytes(-len(block) % len(value)) + value
    return block

"""Launch of a kernel: its arguments against its C signature, its grid against the driver's limits, its execution."""

from collections.abc import Sequence
from ctypes import c_double, c_float, c_int32, c_int64, c_uint32, c_uint64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from standin_gpu import clock, cost, errors, faults
from standin_gpu.compiling import Needs, Parameter
from standin_gpu.device import BLOCK_THREADS, MULTIPROCESSORS, OPTIN_SHARED, REGISTERS, STATIC_SHARED, resident_blocks
from standin_gpu.errors import CUDADriverError
from standin_gpu.lab_kernels import ENDLESS, FAILED, is_lab_kernel, lab_kernels, launched_threads
from standin_gpu.machine import MACHINE, misuse
from standin_gpu.memory import Buffer
from standin_gpu.probes import PROBES
from standin_gpu.streams import Queue

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
RESULTS = ("scratch", "result", "mail", "counters")  # the parameters in which a wrong launch leaves a wrong bit


@dataclass(eq=False)
class Kernel:
    """A loaded kernel. dynamic_shared: what its block may use, `allowed` by cuFuncSetAttribute."""

    name: str
    text: str
    needs: Needs
    block_shared: int = 0
    dynamic_shared: int = STATIC_SHARED
    allowed: bool = False
    launches: int = 0
    fault: faults.Fault | None = field(init=False)
    lab: bool = field(init=False)
    launched_threads: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.fault, self.lab = faults.fault_of(self.text), is_lab_kernel(self.text)
        self.launched_threads = launched_threads(self.text) if self.lab else None
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


def launch(kernel: Kernel, grid: Sequence[int], block: Sequence[int], args: Any, shared: int, on: Queue) -> None:
    """Queue one launch. Raises CUDADriverError as cuLaunchKernel does, Misuse for wrong arguments."""
    MACHINE.call(CUDADriverError, cost.LAUNCH_CALL)
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    kernel.launches += 1
    if kernel.broken("blocked"):
        faults.block_in_c()
    if not blocks or threads > BLOCK_THREADS or shared + kernel.needs.shared > kernel.most_shared:
        raise CUDADriverError(errors.INVALID_VALUE)
    if threads > kernel.max_threads:
        raise CUDADriverError(errors.OUT_OF_RESOURCES)
    found = _arguments(kernel, args)
    if kernel.lab and threads != kernel.launched_threads:
        raise misuse(f"{kernel.name} is compiled for blocks of {kernel.launched_threads} threads, not {threads}")
    if not kernel.lab and kernel.name not in PROBES:
        raise misuse(f"the stand-in does not know what the kernel {kernel.name} does: add it to probes.py")
    uses = [(p, a.buffer) for p, a in zip(kernel.needs.parameters, found, strict=True) if a.buffer]
    reads = [buffer for parameter, buffer in uses if not parameter.written]
    writes = [buffer for parameter, buffer in uses if parameter.written]

    def act() -> float:
        seconds = _act(kernel, found, blocks, threads, shared, on)
        if kernel.broken("wrong"):
            for parameter, buffer in uses:
                buffer.bytes[0] ^= parameter.name in RESULTS
        return seconds

    MACHINE.queue(on, kernel.name, reads, writes, act, CUDADriverError)


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


def _act(kernel: Kernel, found: Sequence[Argument], blocks: int, threads: int, shared: int, on: Queue) -> float:
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
    if not kernel.lab:
        return PROBES[kernel.name](*(a.bits if a.array is None else a.array for a in found))
    ended, counts = lab_kernels(kernel.text).launch(kernel.name, blocks, [a.bits for a in found])
    resident = kernel.occupancy(threads, shared) * MULTIPROCESSORS
    if ended == FAILED or (counts.total("grid_barriers") and blocks > resident):
        MACHINE.pending = errors.LAUNCH_FAILED
    elif ended == ENDLESS:
        on.endless = True
    elif kernel.block_shared > max(shared, STATIC_SHARED) or not all(
        argument.buffer.intact() for argument in found if argument.buffer
    ):
        MACHINE.pending = errors.ILLEGAL_ADDRESS
    seconds = cost.decoded(counts, blocks)
    clock.passed((clock.LONGER - 1) * seconds)
    return seconds

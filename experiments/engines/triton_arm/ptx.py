"""Triton kernels compiled for a GPU that need not be there, their PTX executed by the machine of common/devices/ptx."""

import importlib
import struct
from typing import Any

import torch
from torch import Tensor

from common.devices.ptx.device import PtxDevice
from common.devices.ptx.library import library
from common.devices.ptx.program import Buffer, Machine, Options, PtxKernel, PtxProgram
from common.devices.ptx.report import DEADLOCKED, FINISHED, RACED, TIMED_OUT, with_lines
from common.errors import Crashed, Hung, LabError, Race
from experiments.engines.triton_arm.steps import Launch, TritonStep

TYPES = {torch.int16: "*i16", torch.int32: "*i32", torch.float32: "*fp32"}
ALIGNED = 16  # bytes, of each pointer; Triton is told so, as it finds out itself for tensors on a GPU
NEWEST = 90  # from sm_100 on Triton makes mul.f32x2, which the machine does not know
MEMORY = bytes(16)  # two pointers behind the arguments, for memory that these kernels do not need


Compiled = tuple[PtxKernel, int, int]  # with bytes of dynamic shared memory, and threads of a block


class PtxStep:
    """The launches of a step, whose kernels are compiled and whose tensors are in the memory of this process.

    Any access outside of these tensors ends a launch. device: its arch is the target, that of NEWEST at most; its
    seed, races and timeout hold here, too. Raises LabError without g++, CompileError for an unknown instruction.
    """

    def __init__(self, step: TritonStep, device: PtxDevice) -> None:
        self._step, self._device, self._seed = step, device, device.seed
        self._machine = Machine(library(device.cache))
        self._compiled: dict[tuple[Any, ...], Compiled] = {}
        of = step.buffers
        written = {"cache": of.cache, "scratch": of.scratch, "state": of.state}
        read = {
            name if layer is None else f"{name} of layer {layer}": part for (name, layer), part in of.weights.items()
        }
        self._memory = {
            _address(part): Buffer(name, part.data_ptr(), part.nbytes, name in written)
            for name, part in (written | read | {"angles": step.angles}).items()
        }

    def __call__(self) -> None:
        """Decode one token. Raises Crashed, Race or Hung, with the line of the kernel."""
        for launch in self._step.launches:
            self._run(launch)

    def _run(self, launch: Launch) -> None:
        key = launch.kernel.__name__, *launch.constants.items()
        if key not in self._compiled:
            self._compiled[key] = self._compile(launch)
        (kernel, shared, threads), device = self._compiled[key], self._device
        parameters = struct.pack(f"<{len(launch.given)}Q", *(one.data_ptr() for one in launch.given)) + MEMORY
        memory = list({address: self._memory[address] for address in map(_address, launch.given)}.values())
        options = Options(self._seed, not self._step.layout.model.large, device.races, device.timeout)
        self._seed += 1
        ended = kernel.launch((launch.programs, 1, 1), (threads, 1, 1), parameters, memory, shared, options)
        if ended.status != FINISHED:
            kind = {DEADLOCKED: Hung, TIMED_OUT: Hung, RACED: Race}.get(ended.status, Crashed)
            report = with_lines(ended.report, kernel)
            cause = f"the Triton kernel {launch.kernel.__name__}: {report.partition(chr(10))[0]}"
            raise kind(cause, "correct that line", report)

    def _compile(self, launch: Launch) -> Compiled:
        backend, compiler = map(importlib.import_module, ("triton.backends.compiler", "triton.compiler"))
        kernel, constants = launch.kernel, dict(launch.constants)
        names = [name for name in kernel.arg_names if name not in constants]
        signature = {name: TYPES[one.dtype] for name, one in zip(names, launch.given, strict=True)}
        if any(one.data_ptr() % ALIGNED for one in launch.given):
            raise LabError("a tensor does not begin on 16 bytes", "give the slots of the layout")
        aligned = {(at,): [["tt.divisibility", ALIGNED]] for at in range(len(names))}
        source = compiler.ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants, aligned)
        made = compiler.compile(source, target=backend.GPUTarget("cuda", min(self._device.arch, NEWEST), 32))
        program = PtxProgram(self._machine, made.asm["ptx"], f"{kernel.__name__}.ptx")
        return program.kernel(kernel.__name__), made.metadata.shared, 32 * made.metadata.num_warps


def _address(tensor: Tensor) -> int:
    """Base address of the tensor's storage."""
    return tensor.untyped_storage().data_ptr()

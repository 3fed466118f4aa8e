"""CUDA device: compiles the text with CuPy, and launches it only if the whole grid can be co-resident."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from common.compile.nvrtc import check_driver, options, version
from common.compile.source import Source, launches
from common.compile.target import STATIC_SHARED
from common.devices import cuda_memory
from common.devices.barrier_report import raise_if_barrier_timed_out
from common.devices.dependent import launch_dependent
from common.devices.hold import Hold
from common.devices.kv_cache import CudaKvCache, KvCache
from common.devices.protocol import Session
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.errors import CompileError, Crashed, LabError, Refused
from common.lazy import cupy
from common.model.layout import MAX_BLOCKS, WAIT_WORDS
from common.model.stages import STAGES

PUT_BACK = 3  # copies that restore the buffers before a timed run
BUFFERS = ("cache", "_state", "_waits", "_stream")  # shared by a session with the one beside it
MODULES = 128  # texts that stay loaded: those of a few stacks with their trials


@dataclass(frozen=True)
class CudaProgram:
    """The loaded kernels, `decode` or one per stage, and their source. dynamic_shared: bytes for each launch."""

    source: Source
    kernels: Sequence[Any]
    dynamic_shared: int

    def refuse_oversize(self, blocks: int, multiprocessors: int) -> None:
        """Raise Refused for a grid that cannot be co-resident: waiting for an absent block never ends."""
        threads, kernel, driver = self.source.launched_threads, self.kernels[0], cupy.cuda.driver
        per_sm = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, self.dynamic_shared)
        largest = MAX_BLOCKS if self.source.by_stage else min(per_sm * multiprocessors, MAX_BLOCKS)
        if not 1 <= blocks <= largest:
            raise Refused(
                f"a grid of {blocks} blocks of {threads} threads cannot be co-resident: {kernel.num_regs} registers a "
                f"thread and {kernel.shared_size_bytes + self.dynamic_shared} B of shared memory allow {per_sm} blocks "
                f"on each of {multiprocessors} SMs",
                f"use blocks={largest} or fewer" if largest else "use fewer threads",
            )


class CudaDevice:
    """The first GPU. Creating it needs CuPy and a driver; `choose_device` in common/config has checked both."""

    name = "cuda"

    def __init__(self) -> None:
        self._device = cupy.cuda.Device(0)
        try:
            self._device.use()
        except cupy.cuda.runtime.CUDARuntimeError as error:  # it has failed since the choice
            raise LabError(f"the GPU cannot be used: {error}", "check nvidia-smi, or use device=ptx") from error
        check_driver(cupy.cuda.runtime.driverGetVersion())
        self._module = lru_cache(MODULES)(self._compiled)
        self._weights: list[tuple[torch.Tensor, Any]] = []  # the largest first, each smaller than the one before

    @property
    def arch(self) -> int:
        """Compute capability, ten times: 90 for sm_90."""
        return int(self._device.compute_capability)

    @property
    def multiprocessors(self) -> int:
        return self._device.attributes["MultiProcessorCount"]

    def describe(self) -> dict[str, Any]:
        name = cupy.cuda.runtime.getDeviceProperties(self._device.id)["name"].decode()
        return {
            "device": "cuda",
            "gpu": name,
            "arch": f"sm_{self.arch}",
            "multiprocessors": self.multiprocessors,
            "bus_id": self._device.pci_bus_id,
            "compiler": f"NVRTC {version()}",
        }

    def compile(self, source: Source) -> CudaProgram:
        """Raises Refused for a GPU older than source.min_arch, and CompileError."""
        source.refuse_target(self.arch, "this GPU", "use a newer GPU")
        try:
            module = self._module(source.text, source.launch == "cooperative")
            names = [f"stage_{stage}" for stage in STAGES] if source.by_stage else ["decode"]
            kernels = [module.get_function(name) for name in names]
            shared = int(cupy.ndarray((), cupy.uint32, module.get_global("shared_bytes")).get())
        except cupy.cuda.compiler.CompileException as error:
            log = str(error)
            first = next((line for line in log.splitlines() if "error" in line), log.partition("\n")[0])
            raise CompileError(
                f"NVRTC failed: {first}", "add debug=true for the whole output of the compiler", log
            ) from error
        return CudaProgram(source, kernels, self._dynamic_shared(source, kernels, shared))

    def _compiled(self, text: str, cooperative: bool) -> Any:
        """The module of a text. CuPy keeps it on disk, too, for other processes."""
        module = cupy.RawModule(code=text, options=options(), enable_cooperative_groups=cooperative)
        module.compile()
        return module

    def _dynamic_shared(self, source: Source, kernels: Sequence[Any], needed: int) -> int:
        """Bytes of dynamic shared memory of a launch; sets the kernels' limit to them.

        needed: bytes of a block; up to STATIC_SHARED they are static. Raises Refused for more than the GPU has.
        """
        if needed <= STATIC_SHARED:
            return 0
        most = self._device.attributes["MaxSharedMemoryPerBlockOptin"]
        source.refuse_shared(needed, most, "this GPU")
        for kernel in kernels:
            kernel.max_dynamic_shared_size_bytes = needed
        return needed

    def session(
        self,
        program: CudaProgram,
        weights: torch.Tensor,
        blocks: int | None = None,
        beside: "CudaSession | None" = None,
    ) -> "CudaSession":
        """As Device.session. The weights stay on the GPU until a session with as many or more others is opened."""
        if blocks is None:
            blocks = min(self.multiprocessors * program.source.blocks_per_sm, MAX_BLOCKS)
        program.refuse_oversize(blocks, self.multiprocessors)
        return CudaSession(program, self._there(weights), blocks, beside)

    def _there(self, weights: torch.Tensor) -> Any:
        """The weights on the GPU. A model's stay there while its stacks are tried on smaller ones."""
        for known, there in self._weights:
            if known is weights:
                return there
        # Free what goes before the new ones are allocated.
        self._weights = [each for each in self._weights if len(each[0]) > len(weights)]
        # Blocking: the session's stream does not wait for copies on this one.
        there = cupy.asarray(weights.view(torch.int16).numpy(), blocking=True)
        self._weights.append((weights, there))
        return there


class CudaSession(Session):
    """One kernel and its buffers on a GPU."""

    _scratch: Any

    def __init__(self, program: CudaProgram, weights: Any, blocks: int, beside: "CudaSession | None") -> None:
        from cupyx import zeros_pinned

        layout = self.layout = program.source.layout
        self.blocks = blocks
        self._program, self._weights = program, weights
        self._graph: Any = None
        self._hold: Hold | None = None
        self._start = self._position = 0
        self._rest: KvCache | None = None  # copy of the entries that timed runs overwrite
        size = layout.scratch_size
        large_enough = beside is not None and beside._scratch.size >= size
        self._scratch = beside._scratch[:size] if beside and large_enough else cupy.empty(size, cupy.float32)
        self._at_start = cupy.empty(size, cupy.float32), cupy.empty(layout.state_size, cupy.int32)
        if beside:
            vars(self).update((name, getattr(beside, name)) for name in BUFFERS)
            return
        self._state = cupy.empty(layout.state_size, cupy.int32)
        # Pinned host memory: readable after a trap, which makes device memory inaccessible.
        self._waits = torch.from_numpy(zeros_pinned((WAIT_WORDS * MAX_BLOCKS,), "int32"))
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.cache = CudaKvCache(cupy.empty(layout.cache.stored, cupy.int16), self._stream)

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        self._waits.zero_()
        scratch = torch.empty(self.layout.scratch_size)
        fill_scratch(scratch, self.layout, unwritten)
        with self._stream:  # all on one stream: it does not wait for copies on the default one
            for one, other in ((self._scratch, self._state), self._at_start):
                one.set(scratch.numpy(), stream=self._stream)
                other.set(state.numpy(), stream=self._stream)
        self._stream.synchronize()
        self._rest = None
        self._start = self._position = int(state[self.layout.state["position"].offset])

    def run(self, steps: int = 1, then: "CudaSession | None" = None) -> None:
        if self.layout.tokens > 1:  # where the drafts of earlier steps have led
            self._position = int(self.state()[self.layout.state["position"].offset])
        self.layout.check_room(self._position, steps)
        with self._finished():
            for one in [steps] if then is None else [1] * steps:
                self._queue(one)
                if then is not None:
                    then._queue(1)

    def time(self, steps: int, repeats: int) -> list[float]:
        self.layout.check_room(self._start, steps)
        end = self._start + steps * self.layout.tokens
        if self._rest is None or self._rest.words.shape[-2] != end - self._start:
            self._rest = self.cache.as_reset(self._start, end)
        rest = self._rest

        def put_back() -> None:
            for words, before in zip((self._scratch, self._state), self._at_start, strict=True):
                cuda_memory.copy(self._stream, words, before)
            self.cache.put(self._start, rest)

        self._hold = self._hold or Hold(cupy)
        source = self._program.source
        queued = PUT_BACK + (steps if source.by_graph else len(launches(source, steps)))
        runs = self._hold.seconds(partial(self._queue, steps), repeats, queued, self._finished, put_back)
        self._position = end
        return [seconds / steps for seconds in runs]

    def scratch(self) -> torch.Tensor:
        return torch.from_numpy(self._scratch.get(stream=self._stream))

    def state(self) -> torch.Tensor:
        return torch.from_numpy(self._state.get(stream=self._stream))

    def close(self) -> None:
        del self.cache, self._scratch, self._state, self._at_start, self._rest

    def _queue(self, steps: int) -> None:
        if self._program.source.by_graph:
            self._graph = self._graph or self._capture()
            for _ in range(steps):
                self._graph.launch(self._stream)
        else:
            self._launch(steps)
        self._position += steps

    def _launch(self, steps: int) -> None:
        """Queue each launch of `steps` steps."""
        waits, source, int32 = cupy.uint64(self._waits.data_ptr()), self._program.source, cupy.int32
        buffers = (self._weights, self.cache.words, self._scratch, self._state, waits)
        grid, shared = ((self.blocks,), (source.launched_threads,)), self._program.dynamic_shared
        for number, last in launches(source, steps):
            kernel, given = self._program.kernels[number], (*buffers, int32(last))
            if source.launch == "pdl":
                launch_dependent(cupy, kernel, self.blocks, source.launched_threads, given, shared)
            else:
                kernel(*grid, given, shared_mem=shared)

    def _capture(self) -> Any:
        """The launches of one step as a CUDA graph. It needs no update: position and token are in device memory."""
        self._stream.begin_capture()
        self._launch(1)
        return self._stream.end_capture()

    @contextmanager
    def _finished(self) -> Iterator[None]:
        """Context that queues on the session's stream and then waits for the stream.

        Raises Hung if a barrier timed out, else Crashed for a trap or a fault. A CUDA error is sticky: after it no
        launch in this process can succeed.
        """
        cuda = cupy.cuda
        try:
            with self._stream:
                yield
            self._stream.synchronize()
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            raise_if_barrier_timed_out(self._waits, self.blocks)
            raise Crashed(
                f"{self._program.source.name} failed on the GPU: {error}",
                "run it with device=ptx, which reports the source line",
            ) from error


def context_lost() -> bool:
    """True if an error has destroyed this process's context on the GPU, so that every later call fails."""
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return True
    return False

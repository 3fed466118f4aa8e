"""Calls of the CUDA device to CuPy that need no driver."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.compile.source import build
from common.devices.cuda import STATIC_SHARED, CudaDevice, CudaProgram, CudaSession
from common.errors import Refused
from common.model.layout import Layout

pytestmark = pytest.mark.covers


@pytest.fixture
def gpu(monkeypatch) -> SimpleNamespace:
    """A fake CuPy, and a device that has it: 2 SMs, 99 KB of shared memory a block, one block on each SM."""
    calls: list[tuple] = []
    cupy = SimpleNamespace(uint64=int, int32=int)
    cupy.asarray = lambda array, blocking=False: calls.append(("copy", blocking)) or array
    occupancy = lambda pointer, threads, shared: calls.append(("occupancy", shared)) or 1  # noqa: E731
    cupy.cuda = SimpleNamespace(driver=SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=occupancy))
    device = CudaDevice.__new__(CudaDevice)
    device._cupy, device._weights = cupy, []
    device._device = SimpleNamespace(attributes={"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": 99 << 10})
    monkeypatch.setattr("common.devices.cuda.CudaSession", lambda *arguments: arguments)
    return SimpleNamespace(device=device, calls=calls)


def kernel(calls: list[tuple] | None = None) -> SimpleNamespace:
    class Kernel(SimpleNamespace):
        def __call__(self, grid, block, arguments, shared_mem=0) -> None:
            calls.append(("launch", shared_mem))

    attributes = {"num_regs": 32, "shared_size_bytes": 0, "local_size_bytes": 0}
    return Kernel(kernel=SimpleNamespace(ptr=0), max_dynamic_shared_size_bytes=STATIC_SHARED, **attributes)


def test_shared_memory_above_48_kb_is_allowed_asked_for_and_launched_with(gpu, tiny):
    source, kernels = build([], tiny), [kernel(gpu.calls)]
    assert gpu.device._dynamic_shared(source, kernels, STATIC_SHARED) == 0
    assert kernels[0].max_dynamic_shared_size_bytes == STATIC_SHARED
    assert gpu.device._dynamic_shared(source, kernels, 60_000) == 60_000
    assert kernels[0].max_dynamic_shared_size_bytes == 60_000
    program = CudaProgram(source, kernels, 60_000)
    gpu.device.session(program, torch.zeros(8, dtype=torch.bfloat16))
    assert ("occupancy", 60_000) in gpu.calls
    session = CudaSession.__new__(CudaSession)
    session._cupy, session._program, session.blocks = gpu.device._cupy, program, 2
    session._weights = session._scratch = session._state = np.zeros(1)
    session.cache = SimpleNamespace(words=np.zeros(1))
    session._waits = torch.zeros(1)
    session._launch(1)
    assert gpu.calls[-1] == ("launch", 60_000)


def test_more_shared_memory_than_the_gpu_has_is_refused(gpu, tiny):
    with pytest.raises(Refused, match="needs 200000 B of shared memory a block, and this GPU allows 101376 B"):
        gpu.device._dynamic_shared(build([], tiny), [kernel()], 200_000)


def test_weights_are_on_the_gpu_before_another_stream_reads_them(gpu, tiny):
    program = CudaProgram(build([], tiny), [kernel()], 0)
    gpu.device.session(program, torch.zeros(8, dtype=torch.bfloat16))
    assert [call for call in gpu.calls if call[0] == "copy"] == [("copy", True)]


def test_a_models_weights_stay_on_the_gpu_while_its_stacks_are_tried(gpu, tiny):
    program = CudaProgram(build([], tiny), [kernel()], 0)
    large, small, other, larger = (torch.zeros(size, dtype=torch.bfloat16) for size in (64, 8, 16, 128))
    copied = []
    for weights in (large, small, small, large, other, small, large, larger, large):
        before = len(gpu.calls)
        gpu.device.session(program, weights)
        copied.append(any(call[0] == "copy" for call in gpu.calls[before:]))
    assert copied == [True, True, False, False, True, True, False, True, True]
    assert [len(weights) for weights, _ in gpu.device._weights] == [128, 64]


def test_a_reset_copies_on_the_stream_that_runs_the_kernel_and_waits_for_it(tiny):
    calls: list[tuple] = []

    class Stream:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...
        def synchronize(self) -> None:
            calls.append(("wait", self))

    def array(name: str) -> SimpleNamespace:
        return SimpleNamespace(set=lambda values, stream=None: calls.append((name, stream)))

    session = CudaSession.__new__(CudaSession)
    session.layout, session._waits, session._stream = Layout(tiny), torch.zeros(1), Stream()
    session.cache = SimpleNamespace(reset=lambda history, position, unwritten: calls.append(("cache", session._stream)))
    session._scratch = array("scratch")
    session._state, session._at_start = array("state"), (array("scratch at the start"), array("state at the start"))
    session.reset([1, 2], 1)
    stream = session._stream
    copies = [(name, stream) for name in ("cache", "scratch", "state", "scratch at the start", "state at the start")]
    assert calls == [*copies, ("wait", stream)]

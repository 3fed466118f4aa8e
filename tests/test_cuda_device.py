"""Weights that the CUDA device keeps and its refusals, with a CuPy that counts; the rest of it runs on the stand-in."""

from types import SimpleNamespace

import pytest
import torch

from common.compile.source import build
from common.compile.target import STATIC_SHARED
from common.devices.cuda import CudaDevice, CudaProgram, CudaSession
from common.errors import Refused
from common.model.layout import Layout

pytestmark = pytest.mark.covers

KERNEL = SimpleNamespace(
    kernel=SimpleNamespace(ptr=0), max_dynamic_shared_size_bytes=STATIC_SHARED, num_regs=32, shared_size_bytes=0,
    local_size_bytes=0,
)  # fmt: skip


@pytest.fixture
def gpu(monkeypatch) -> SimpleNamespace:
    """A device of 2 SMs with 99 KB of shared memory a block and a block on each SM; copies: True for one that waits."""
    copies: list[bool] = []
    cupy = SimpleNamespace(asarray=lambda array, blocking: copies.append(blocking) or array)
    cupy.cuda = SimpleNamespace(driver=SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *given: 1))
    device = CudaDevice.__new__(CudaDevice)
    device._weights = []
    monkeypatch.setattr("common.devices.cuda.cupy", cupy)
    device._device = SimpleNamespace(attributes={"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": 99 << 10})
    monkeypatch.setattr("common.devices.cuda.CudaSession", lambda *arguments: arguments)
    return SimpleNamespace(device=device, copies=copies)


def test_more_shared_memory_than_the_gpu_has_is_refused(gpu, tiny):
    with pytest.raises(Refused, match="needs 200000 B of shared memory a block, and this GPU allows 101376 B"):
        gpu.device._dynamic_shared(build([], tiny), [KERNEL], 200_000)


def test_a_models_weights_stay_on_the_gpu_while_its_stacks_are_tried(gpu, tiny):
    program = CudaProgram(build([], tiny), [KERNEL], 0)
    large, small, other, larger = (torch.zeros(size, dtype=torch.bfloat16) for size in (64, 8, 16, 128))
    copied = []
    for weights in (large, small, small, large, other, small, large, larger, large):
        before = len(gpu.copies)
        gpu.device.session(program, weights)
        copied.append(len(gpu.copies) > before)
    assert copied == [True, True, False, False, True, True, False, True, True]
    assert [len(weights) for weights, _ in gpu.device._weights] == [128, 64]
    assert all(gpu.copies), "another stream reads them"


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
    copied = {"cache", "scratch", "state", "scratch at the start", "state at the start"}
    assert {*calls[:-1]} == {(name, session._stream) for name in copied}
    assert calls[-1] == ("wait", session._stream)

"""The stand-in's captures: what is refused in them, and what their graphs do not keep."""

import numpy as np
import pytest


@pytest.fixture
def kernel(cupy):
    """kernel(words): a launch on the current stream that changes the array."""
    text = 'extern "C" __global__ void change(int *words) { words[threadIdx.x] += 1; }'
    change = cupy.RawKernel(text, "change")
    return lambda words: change((1,), (9,), (words,))


@pytest.fixture
def stream(cupy):
    return cupy.cuda.Stream(non_blocking=True)


def captured(stream, work):
    """A graph of what `work` queues."""
    with stream:
        stream.begin_capture()
        work()
        return stream.end_capture()


REFUSED = {
    "a wait": lambda cupy, stream, array: stream.synchronize(),
    "a wait ": lambda cupy, stream, array: cupy.cuda.Device().synchronize(),
    "a query": lambda cupy, stream, array: stream.done,
    "an event": lambda cupy, stream, array: stream.record(),
    "another capture": lambda cupy, stream, array: stream.begin_capture(),
    "a copy": lambda cupy, stream, array: array.get(blocking=False),
    "a copy ": lambda cupy, stream, array: array.set(np.ones(9, np.int32)),
    "a copy  ": lambda cupy, stream, array: cupy.asarray(np.ones(9)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_only_work_of_the_gpu_is_captured(cupy, stream, kernel, misuse, what):
    array = cupy.zeros(9, np.int32)
    cupy.cuda.Stream.null.synchronize()

    def work() -> None:
        with pytest.raises(misuse, match=f"{what.strip()} in a capture"):
            REFUSED[what](cupy, stream, array)
        kernel(array)

    captured(stream, work).launch(stream)
    assert array.get(stream=stream).tolist() == 9 * [1]


def test_a_capture_is_relaxed_and_ends_once(cupy, stream):
    with pytest.raises(NotImplementedError, match="relaxed captures of non-blocking streams"):
        cupy.cuda.Stream().begin_capture()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalState"):
        stream.end_capture()


def test_a_graph_that_uses_freed_memory_is_refused(cupy, stream, kernel, misuse):
    held = [cupy.zeros(9, np.int32)]
    cupy.cuda.Stream.null.synchronize()
    graphs = {
        "change writes": captured(stream, lambda: kernel(held[0])),
        "memset writes": captured(stream, lambda: [cupy.zeros(9)]),
    }
    held.clear()
    for what, graph in graphs.items():
        with pytest.raises(misuse, match=rf"{what} memory that was freed at .*; a graph does not keep its arrays"):
            graph.launch(stream)


def test_memory_that_a_graph_still_uses_has_been_given_away(cupy, stream, kernel, misuse):
    held = [cupy.zeros(9, np.int32)]
    cupy.cuda.Stream.null.synchronize()
    captured(stream, lambda: kernel(held[0])).launch(stream)
    held.clear()
    with pytest.raises(misuse, match=r"memset writes memory that was freed at .* while change of .* may still use it"):
        cupy.zeros(9)
    stream.synchronize()
    cupy.zeros(9)

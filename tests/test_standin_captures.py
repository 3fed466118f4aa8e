"""The stand-in's captures: what breaks them, what only fails beside them, and what their graphs do not keep."""

import numpy as np
import pytest

UNSUPPORTED = "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"


@pytest.fixture
def empty(cupy):
    """Launch of a kernel on the current stream."""
    kernel = cupy.RawKernel('extern "C" __global__ void empty() {}', "empty")
    return lambda: kernel((1,), (32,), ())


@pytest.fixture
def stream(cupy):
    return cupy.cuda.Stream(non_blocking=True)


def captured(stream, work):
    """A graph of what `work` queues."""
    with stream:
        stream.begin_capture()
        work()
        return stream.end_capture()


BREAKING = {
    "a wait for the stream": (lambda cupy, stream: stream.synchronize(), UNSUPPORTED),
    "a wait for the device": (lambda cupy, stream: cupy.cuda.Device().synchronize(), UNSUPPORTED),
    "a wait for an event in it": (lambda cupy, stream: stream.record().synchronize(), "cudaErrorCapturedEvent"),
    "a time in it": (
        lambda cupy, stream: cupy.cuda.get_elapsed_time(stream.record(), stream.record()),
        "cudaErrorCapturedEvent",
    ),
    "a query of the stream": (lambda cupy, stream: stream.done, None),
    "a query of an event in it": (lambda cupy, stream: stream.record().done, None),
}


@pytest.mark.parametrize("what", BREAKING)
def test_a_call_that_conflicts_with_a_capture_breaks_it(cupy, stream, empty, what):
    call, error = BREAKING[what]
    array = cupy.zeros(9)
    cupy.cuda.Stream.null.synchronize()
    with stream:
        stream.begin_capture()
        array.fill(3)
        if error:
            with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=error):
                call(cupy, stream)
        else:
            assert not call(cupy, stream)  # CuPy does not look at the error
        with pytest.raises(cupy.cuda.driver.CUDADriverError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
            empty()
        with pytest.raises(RuntimeError, match="an error has invalidated the capture sequence"):
            stream.is_capturing()
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorStreamCaptureInvalidated"):
            stream.end_capture()
        assert not stream.is_capturing()
        empty()
        assert not array.get().any()


COPIES = {
    "D2H": lambda array: array.get(),
    "D2H of one": lambda array: int(array[0]),
    "D2H without waiting": lambda array: array.get(blocking=False),
    "H2D": lambda array: array.set(np.ones(9)),
}


@pytest.mark.parametrize("what", COPIES)
def test_a_copy_from_or_to_the_host_fails_and_the_capture_goes_on(cupy, stream, what):
    array = cupy.zeros(9)
    cupy.cuda.Stream.null.synchronize()

    def work() -> None:
        with pytest.raises(RuntimeError, match=f"stream is capturing, so {what[:3]} transfers are disallowed"):
            COPIES[what](array)
        array.fill(3)

    captured(stream, work).launch(stream)
    assert (array.get(stream=stream) == 3).all()


def test_a_capture_begins_and_ends_once_and_is_relaxed(cupy, stream):
    with pytest.raises(NotImplementedError, match="relaxed captures of non-blocking streams"):
        cupy.cuda.Stream().begin_capture()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalState"):
        stream.end_capture()
    stream.begin_capture()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalState"):
        stream.begin_capture()
    stream.end_capture()


def test_a_graph_that_uses_freed_memory_is_refused(cupy, stream, misuse):
    target, held = cupy.zeros(9), [cupy.zeros(9)]
    cupy.cuda.Stream.null.synchronize()

    def strided_copy() -> None:
        with pytest.raises(RuntimeError, match="D2H transfers are disallowed"):
            target[::2].get()

    graphs = {
        "fill writes": captured(stream, lambda: held[0][3:].fill(1)),
        "assignment reads": captured(stream, lambda: target.__setitem__(slice(None), held[0])),
        "memset writes": captured(stream, lambda: [cupy.zeros(9)]),
        "copy of a strided view writes": captured(stream, strided_copy),  # into memory of its own
    }
    held.clear()
    for what, graph in graphs.items():
        with pytest.raises(misuse, match=rf"{what} memory that was freed at .*; a graph does not keep its arrays"):
            graph.launch(stream)


def test_memory_that_a_graph_still_uses_has_been_given_away(cupy, stream, misuse):
    held = [cupy.zeros(9)]
    cupy.cuda.Stream.null.synchronize()
    captured(stream, lambda: held[0].fill(3)).launch(stream)
    held.clear()
    with pytest.raises(misuse, match=r"memset writes memory that was freed at .* while fill of .* may still use it"):
        cupy.zeros(9)
    stream.synchronize()
    cupy.zeros(9)

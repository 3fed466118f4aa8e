"""Calls that CUDA does not allow while a stream is captured.

Each fails and invalidates the capture that it conflicts with: from then on every call with the capturing stream fails,
and so does the end of the capture, after which the stream is as before. Captures are relaxed, as the lab's are.
"""

from collections.abc import Sequence

from standin_gpu import errors
from standin_gpu.errors import CUDARuntimeError
from standin_gpu.streams import Capture, Order, Queue


def invalidate(captures: Sequence[Capture | None], status: int) -> None:
    """Raise the error of a call that conflicts with these captures, if there are any."""
    if found := [capture for capture in captures if capture]:
        broken = not all(capture.valid for capture in found)
        for capture in found:
            capture.valid = False
        raise CUDARuntimeError(errors.CAPTURE_INVALIDATED if broken else status)


class Captures:
    """The captures of all streams of a process."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def of(self, on: Queue, error: type[RuntimeError] = CUDARuntimeError) -> Capture | None:
        """The capture that records what is now queued on this stream."""
        if on.capture and not on.capture.valid:
            raise error(errors.CAPTURE_INVALIDATED)
        return on.capture

    def refuse_waiting(self, on: Queue) -> None:
        """Refuse a wait for a stream, or a query."""
        invalidate([on.capture], errors.CAPTURE_UNSUPPORTED)

    def refuse_waiting_for_all(self) -> None:
        invalidate([queue.capture for queue in self._order.queues], errors.CAPTURE_UNSUPPORTED)

    def capturing(self, on: Queue) -> bool:
        """Answer to cudaStreamIsCapturing as CuPy words it, which invalidates nothing."""
        if on.capture and not on.capture.valid:
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return on.capture is not None

    def refuse_transfer(self, on: Queue, direction: str) -> None:
        """Refuse a copy from or to the host, as CuPy does before it asks CUDA. direction: H2D or D2H."""
        if self.capturing(on):
            raise RuntimeError(f"the current stream is capturing, so {direction} transfers are disallowed")

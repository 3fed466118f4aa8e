"""Times of queued work on a GPU, without the host's: a spinning kernel holds the stream until all is queued."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from common.compile.nvrtc import options
from common.errors import Refused

# One thread that ends after some nanoseconds of the GPU's own clock.
TEXT = r"""
#line 1 "common/devices/hold.cu"
extern "C" __global__ void hold(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < nanoseconds);
}
"""
# Nanoseconds in which Python queues one launch, most of the time. On an H200's host 10,000 were too few: each run of
# 20 steps ran twice.
PER_LAUNCH = 25_000
QUEUE = 1000  # launches that a stream takes before the host has to wait; the driver's queue holds 1024
LONGEST = 1_000_000_000  # nanoseconds; the host needs a hundredth of it for a full queue


class Hold:
    """The kernel, compiled once for a device."""

    def __init__(self, cupy: Any) -> None:
        self._cupy, self._per_launch = cupy, PER_LAUNCH
        self._kernel = cupy.RawModule(code=TEXT, options=options()).get_function("hold")

    def seconds(
        self,
        run: Callable[[], None],
        repeats: int,
        launches: int,
        finished: Callable[[], AbstractContextManager[None]],
        before: Callable[[], None] = lambda: None,
    ) -> list[float]:
        """Seconds of each of `repeats` runs, all queued before the first begins, by CUDA events.

        run: queues `launches` launches on the current stream. before: queues untimed work ahead of each run.
        finished: a context that makes the stream current and waits for it at its end.
        If the GPU began before the host had queued everything, the times include Python's: they are dropped, and all
        is queued again after a longer hold, with which later calls begin. With more launches than the queue holds, the
        host lags behind the GPU only if a launch takes longer to queue than to run. Raises Refused where launches are
        synchronous.
        """
        cuda, queued = self._cupy.cuda, repeats * (launches + 1)
        while True:
            nanoseconds = self._per_launch * min(queued, QUEUE)
            events = [(cuda.Event(), cuda.Event()) for _ in range(repeats)]
            with finished():
                self._kernel((1,), (1,), (self._cupy.uint64(nanoseconds),))
                for start, stop in events:
                    before()
                    start.record()
                    run()
                    stop.record()
                late = events[0][0].done
            if not late or queued > QUEUE:
                return [cuda.get_elapsed_time(start, stop) / 1e3 for start, stop in events]
            if nanoseconds > LONGEST:
                raise Refused(
                    f"launches are synchronous: the GPU ran the first of {queued} before the last was queued",
                    "unset CUDA_LAUNCH_BLOCKING, and measure without a profiler or debugger",
                )
            self._per_launch *= 4

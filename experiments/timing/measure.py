"""Interleaved latency measurement on a GPU, repeated until the confidence intervals are narrow enough."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from common.config.run_config import Timing
from common.devices.nvml import Gpu, disturbances
from common.devices.nvtx import annotate, title
from common.model.shapes import Model
from common.record.measurement import Measurement
from experiments.tables.row import STOPPED
from experiments.timing.bandwidth import Ceiling
from experiments.timing.statistics import (
    VERDICT_CONFIDENCE,
    compare,
    estimate,
    implausible,
    median_interval,
    min_samples,
)

REPEATS = 3  # runs of queued steps in one round; their median is the round's sample
GROWTH = 1.25  # factor between the numbers of rounds at which the intervals are computed


@runtime_checkable
class TimedSession(Protocol):
    """Session that can be timed: the method that `measure` needs beyond common/devices/protocol.py."""

    def time(self, steps: int, repeats: int) -> list[float]:
        """Seconds per step of `repeats` runs of `steps` steps each, by CUDA events.

        Every run starts with the buffers as the last `reset` left them: what a run has written is put back, in stream
        order before the next run's first event. All runs are queued without synchronization in between; the call
        returns when the last one is done. Raises Hung or Crashed.
        """


@dataclass(frozen=True)
class TimedKernel:
    """One kernel to measure. `session` is reset to the position to measure at.

    stack   variants, innermost first
    parent  stack of the kernel to compare with: the first other kernel with this stack, which may equal `stack` (a
            comparison of a kernel with itself); None: no comparison
    check   called after every round, with the outputs of its last run still in the buffers; raises LabError when they
            are wrong
    """

    stack: tuple[str, ...]
    session: TimedSession
    parent: tuple[str, ...] | None
    check: Callable[[], None]


def measure(
    kernels: Sequence[TimedKernel],
    model: Model,
    position: int,
    steps: int,
    timing: Timing,
    ceiling: Ceiling,
    gpu: Gpu | None = None,
    on_round: Callable[[int, int], None] = lambda done, most: None,
    beat: float | None = None,
) -> list[Measurement]:
    """Measure all kernels at `position`, interleaved; one measurement each, in their order.

    steps: tokens of one run, cut where the cache ends. on_round: called after each round with (rounds done, limit).
    Every kernel runs once per round, and the order is reversed every round, so a temporary slowdown of the GPU affects
    all of them. Rounds continue until the half width of every interval is at most `timing.interval` percent of its
    median and no comparison is UNSTABLE, or until `timing.max_rounds`.
    beat: seconds that the last kernel has to beat. It is STOPPED once its median is longer, by a bound that holds with
    VERDICT_CONFIDENCE.
    """
    steps = min(steps, model.positions - position)
    for kernel in kernels:
        with annotate(title("warm-up", kernel.stack, f"position {position}")):
            kernel.session.time(steps, math.ceil(timing.warmup / steps))

    indexes = range(len(kernels))
    parents = {
        child: next(other for other in indexes if other != child and kernels[other].stack == kernels[child].parent)
        for child in indexes
        if kernels[child].parent is not None
    }
    samples: list[list[float]] = [[] for _ in indexes]
    readings: list[dict[str, Any]] = []
    next_check, done = min(timing.max_rounds, max(timing.rounds, min_samples())), 0
    while True:
        done += 1
        for i in indexes if done % 2 else reversed(indexes):
            with annotate(title("measure", kernels[i].stack, f"position {position} round {done}")):
                samples[i].append(float(np.median(kernels[i].session.time(steps, REPEATS))))
            kernels[i].check()
        if gpu:
            readings.append(gpu.reading())
        on_round(done, timing.max_rounds)
        if done < next_check:
            continue
        seconds = [estimate(values) for values in samples]
        pairs = {child: compare(samples[parent], samples[child]) for child, parent in parents.items()}
        narrow = [one.half_width * 100 <= timing.interval for one in seconds]
        decided = all(pair.verdict != "UNSTABLE" for pair in pairs.values())
        stopped = beat is not None and median_interval(samples[-1], VERDICT_CONFIDENCE)[0] > beat
        if stopped or done >= timing.max_rounds or (all(narrow) and decided):
            break
        next_check = min(timing.max_rounds, math.ceil(done * GROWTH))

    bytes_per_step = sum(model.bytes_per_token(position + step) for step in range(steps)) / steps

    def verdict(i: int) -> str | None:
        if implausible(bytes_per_step, seconds[i].median, ceiling.best, ceiling.last_level_cache):
            return "IMPLAUSIBLE"
        if stopped and i == indexes[-1]:
            return STOPPED
        if not narrow[i]:
            return "UNSTABLE"
        return pairs[i].verdict if i in pairs else None

    return [
        Measurement(
            stack=kernels[i].stack,
            position=position,
            steps=steps,
            seconds=seconds[i],
            samples=tuple(samples[i]),
            bytes_per_step=bytes_per_step,
            bandwidth=bytes_per_step / seconds[i].median,
            of_ceiling=bytes_per_step / seconds[i].median / ceiling.best,
            comparison=pairs.get(i),
            verdict=verdict(i),
            readings=tuple(readings),
            marks=disturbances(readings),
        )
        for i in indexes
    ]

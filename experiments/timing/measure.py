"""Interleaved latency measurement on a GPU, repeated until the confidence intervals are narrow enough."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.config.run_config import Timing
from common.devices.nvml import Gpu, disturbances
from common.devices.nvtx import annotate, title
from common.devices.protocol import Session
from common.model.shapes import Model
from common.record.measurement import IMPLAUSIBLE, STOPPED, Measurement
from experiments.timing.bandwidth import Ceiling
from experiments.timing.statistics import (
    MIN_SAMPLES,
    VERDICT_CONFIDENCE,
    compare,
    estimate,
    implausible,
    median_interval,
)

REPEATS = 3  # runs of queued steps in one round; their median is the round's sample
GROWTH = 1.25  # factor between the numbers of rounds at which the intervals are computed


@dataclass(frozen=True)
class Kernel:
    """A kernel to time. stack: variants, innermost first; session: reset to the position to measure at.

    check: called after every round, with the outputs of its last run still in the buffers; raises LabError for wrong
    ones.
    """

    stack: tuple[str, ...]
    session: Session
    check: Callable[[], None] = lambda: None


def measure(
    child: Kernel,
    parent: Kernel | None,
    model: Model,
    position: int,
    steps: int,
    timing: Timing,
    ceiling: Ceiling,
    gpu: Gpu | None = None,
    on_round: Callable[[int, int], None] = lambda done, most: None,
    beat: float | None = None,
) -> Measurement:
    """Measure `child` at `position`, interleaved with `parent` if there is one.

    steps: tokens of one run, cut where the cache ends. on_round: called after each round with (rounds done, limit).
    Each kernel runs once per round, and the order is reversed every round, so a temporary slowdown of the GPU affects
    both. Rounds continue until the half width of both intervals is at most `timing.interval` percent of the median and
    the comparison is not UNSTABLE, or until `timing.max_rounds`.
    beat: seconds to beat. The child is STOPPED once its median is longer, by a bound that holds with
    VERDICT_CONFIDENCE.
    """
    steps = min(steps, model.positions - position)
    kernels = [child] if parent is None else [parent, child]
    for kernel in kernels:
        with annotate(title("warm-up", kernel.stack, f"position {position}")):
            kernel.session.time(steps, math.ceil(timing.warmup / steps))

    samples: list[list[float]] = [[] for _ in kernels]
    readings: list[dict[str, Any]] = []
    next_check, done = min(timing.max_rounds, max(timing.rounds, MIN_SAMPLES)), 0
    while True:
        done += 1
        for kernel, own in list(zip(kernels, samples, strict=True))[:: 1 if done % 2 else -1]:
            with annotate(title("measure", kernel.stack, f"position {position} round {done}")):
                own.append(float(np.median(kernel.session.time(steps, REPEATS))))
            kernel.check()
        if gpu:
            readings.append(gpu.reading())
        on_round(done, timing.max_rounds)
        if done < next_check:
            continue
        estimates = [estimate(own) for own in samples]
        comparison = compare(samples[0], samples[1]) if parent else None
        narrow = [one.half_width * 100 <= timing.interval for one in estimates]
        decided = comparison is None or comparison.verdict != "UNSTABLE"
        stopped = beat is not None and median_interval(samples[-1], VERDICT_CONFIDENCE)[0] > beat
        if stopped or done >= timing.max_rounds or (all(narrow) and decided):
            break
        next_check = min(timing.max_rounds, math.ceil(done * GROWTH))

    seconds = estimates[-1]
    bytes_per_step = sum(model.bytes_per_token(position + step) for step in range(steps)) / steps
    if implausible(bytes_per_step, seconds.median, ceiling.best, ceiling.last_level_cache):
        verdict: str | None = IMPLAUSIBLE
    elif stopped:
        verdict = STOPPED
    elif not narrow[-1]:
        verdict = "UNSTABLE"
    else:
        verdict = comparison.verdict if comparison else None
    return Measurement(
        stack=child.stack,
        position=position,
        steps=steps,
        seconds=seconds,
        samples=tuple(samples[-1]),
        bytes_per_step=bytes_per_step,
        bandwidth=bytes_per_step / seconds.median,
        of_ceiling=bytes_per_step / seconds.median / ceiling.best,
        comparison=comparison,
        verdict=verdict,
        readings=tuple(readings),
        marks=disturbances(readings),
    )

"""Latency on a GPU: variants and their parents take turns in one process until the figures are firm."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from common.config import Timing
from common.gpu import Gpu, marks
from common.model import Model
from common.ranges import annotate, title
from experiments.timing.bandwidth import Ceiling
from experiments.timing.statistics import Comparison, Estimate, compare, estimate, implausible, least_pairs

REPEATS = 3  # runs of queued steps in one round; their median is the round's sample
PATIENCE = 1.25  # look at the figures again when there are this many times the samples of the last look


class TimedSession(Protocol):
    """What measuring needs of a session, beyond the verbs in common/devices."""

    def time(self, steps: int, repeats: int) -> list[float]:
        """Seconds per step of `repeats` runs, by CUDA events, of `steps` steps each.

        Every run starts at the position given to the last `reset`: the position word alone is put back, on the device
        and in order, before the run's first event, for the cache below that position and the tokens do not depend on
        it. All runs are queued without waiting in between; it returns when the last one is done.
        Raises Hung or Crashed.
        """


@dataclass(frozen=True)
class Contender:
    """One kernel in the race. `session` is reset to the position to measure at.

    stack   variants, innermost first
    parent  stack of the contender it is compared with, the first other one that has it (it may be a stack's own, which
            races it against itself); None: none
    check   called after the last round, with the outputs of the last timed launch still in the buffers; raises
            LabError when they are wrong
    """

    stack: tuple[str, ...]
    session: TimedSession
    parent: tuple[str, ...] | None
    check: Callable[[], None]


@dataclass(frozen=True)
class Measurement:
    """Time of one decode step, averaged over `steps` tokens from `position` on.

    "Latency at position p" is the mean over positions p to p + steps - 1, and `bytes_per_step` is the mean of the same
    positions (20 steps of Qwen3-0.6B: 0.1 % more bytes than at p alone). With position 0 and the steps of a whole
    generation, its inverse is the throughput of that generation.

    seconds     per step: median over rounds, with its interval
    samples     seconds per step, one for each round; index i is the same round for all contenders
    bandwidth   bytes_per_step / median, in bytes per second
    comparison  with the parent; None where there is none
    verdict     FASTER, SAME, SLOWER, UNSTABLE, IMPLAUSIBLE, or None: firm, with no parent
    readings    the GPU's clocks, power, temperature and throttling after each round; [] without NVML
    marks       what they say disturbed the measurement: throttling, other processes, clocks that changed
    """

    stack: tuple[str, ...]
    position: int
    steps: int
    seconds: Estimate
    samples: tuple[float, ...]
    bytes_per_step: float
    bandwidth: float
    of_ceiling: float
    comparison: Comparison | None
    verdict: str | None
    readings: tuple[dict[str, Any], ...]
    marks: tuple[str, ...]


def measure(
    contenders: Sequence[Contender],
    model: Model,
    position: int,
    steps: int,
    timing: Timing,
    ceiling: Ceiling,
    gpu: Gpu | None = None,
    on_round: Callable[[int, int], None] = lambda done, most: None,
) -> list[Measurement]:
    """Race the contenders at `position`; one measurement each, in their order.

    steps: tokens of one run, cut where the cache ends. on_round: is told after each round how many are done, and how
    many there will be at most. Every contender is run once per round, in an order that turns around every round, so
    that what slows the GPU for a while slows all. Rounds go on until every interval is within `timing.interval`
    percent of its median and every comparison has a verdict, or there have been `timing.max_rounds`.
    """
    steps = min(steps, model.positions - position)
    for contender in contenders:
        with annotate(title("warm-up", contender.stack, f"position {position}")):
            contender.session.time(steps, math.ceil(timing.warmup / steps))

    everyone = range(len(contenders))
    parents = {
        child: next(
            other for other in everyone if other != child and contenders[other].stack == contenders[child].parent
        )
        for child in everyone
        if contenders[child].parent is not None
    }
    samples: list[list[float]] = [[] for _ in everyone]
    readings: list[dict[str, Any]] = []
    least = min(timing.max_rounds, max(timing.rounds, least_pairs()))
    look, done = least, 0
    while True:
        done += 1
        for i in everyone if done % 2 else reversed(everyone):
            with annotate(title("measure", contenders[i].stack, f"position {position} round {done}")):
                samples[i].append(float(np.median(contenders[i].session.time(steps, REPEATS))))
        if gpu:
            readings.append(gpu.reading())
        on_round(done, timing.max_rounds)
        if done < look:
            continue
        seconds = [estimate(values) for values in samples]
        pairs = {child: compare(samples[parent], samples[child]) for child, parent in parents.items()}
        firm = [figure.half_width * 100 <= timing.interval for figure in seconds]
        decided = all(pair.verdict != "UNSTABLE" for pair in pairs.values())
        if done >= timing.max_rounds or (all(firm) and decided):
            break
        look = min(timing.max_rounds, math.ceil(done * PATIENCE))

    for contender in contenders:
        contender.check()

    bytes_per_step = sum(model.bytes_per_token(position + step) for step in range(steps)) / steps

    def verdict(i: int) -> str | None:
        if implausible(bytes_per_step, seconds[i].median, ceiling.best, ceiling.last_level_cache):
            return "IMPLAUSIBLE"
        if not firm[i]:
            return "UNSTABLE"
        return pairs[i].verdict if i in pairs else None

    return [
        Measurement(
            stack=contenders[i].stack,
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
            marks=marks(readings),
        )
        for i in everyone
    ]

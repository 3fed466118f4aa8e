"""Energy of a token: the power of the board while a stack decodes, and while the GPU is idle."""

import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from threading import Event, Thread
from typing import Any

from common.devices.nvml import Gpu
from common.errors import LabError
from common.model.shapes import Model
from experiments.experiment import Experiment
from experiments.tables.result_table import ResultTable

QUESTION = "how many joules a token takes"
PERIOD = 0.02  # seconds between two readings; drivers refresh theirs every 20 to 100 ms
AVERAGE = 1.0  # seconds over which NVML averages power on Hopper; less on other GPUs
SETTLE = 1.5 * AVERAGE  # seconds until a reading includes no earlier power
NOTES = ("Power is the board's, as NVML reports it; idle power is not taken off.",)


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack of the run."""
    seconds = experiment.options.number("seconds")
    if seconds < 2 * AVERAGE:
        raise LabError(
            f"options.seconds={seconds:g} is too short: a GPU's power is an average over {AVERAGE:g} s",
            f"give options.seconds={2 * AVERAGE:g} or more",
        )
    experiment.need_gpu()
    gpu = Gpu.current()
    if gpu is None or gpu.reading()["power_w"] is None:
        raise LabError(
            "NVML reports no power of this GPU", "install nvidia-ml-py, and a driver that lets it read power"
        )
    sound = [stack for stack, _ in experiment.latencies(experiment.config.stacks)]  # a wrong kernel gets no figure
    with experiment.exclusive_gpu():
        time.sleep(SETTLE)
        idle = _sample(gpu, lambda: time.sleep(seconds))
    rows = [{"variant": "idle", "average W": average(idle), "peak W": max(power for _, power in idle)}]
    rows += experiment.session_rows(sound, lambda session: _decode(experiment.model, session, gpu, seconds))
    return experiment.answer(QUESTION, rows, NOTES)


def joules(samples: Sequence[tuple[float, float]]) -> float:
    """Energy of (second, watt) samples by the trapezoidal rule."""
    return sum((end - begin) * (before + after) / 2 for (begin, before), (end, after) in pairwise(samples))


def settled(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (second, watt) samples whose average includes no time before the first one."""
    return [(at, power) for at, power in samples if at - samples[0][0] >= SETTLE]


def average(samples: Sequence[tuple[float, float]]) -> float:
    """Mean power in watts, weighted by time. Raises LabError for fewer than two samples."""
    if len(samples) < 2:
        raise LabError("NVML reported no power while it was read", "run it again")
    return joules(samples) / (samples[-1][0] - samples[0][0])


def _decode(model: Model, session: Any, gpu: Gpu, seconds: float) -> dict[str, Any]:
    """Decode the first half of the cache again and again for at least `seconds`, and read power meanwhile.

    The rate is of decoding alone, by the GPU's own clock; with drafts a step has as many tokens as it accepts.
    """
    steps, decoded = model.positions // 2 // session.layout.tokens, list[float]()
    session.reset([0], position=0)
    session.time(steps, 1)  # loads the kernel
    tokens = int(session.state()[session.layout.state["position"].offset])

    def run() -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < SETTLE + seconds:
            decoded.extend(session.time(steps, 1))

    samples = settled(_sample(gpu, run))
    rate, power = tokens / steps / fmean(decoded), average(samples)
    return {
        "average W": power,
        "peak W": max(watt for _, watt in samples),
        "tok/s": rate,
        "J/token": power / rate,
        "tokens/J": rate / power,
    }


def _sample(gpu: Gpu, work: Any) -> list[tuple[float, float]]:
    """(second, watt) while `work()` runs."""
    stop, samples = Event(), []

    def read() -> None:
        while not stop.wait(PERIOD):
            if (power := gpu.reading()["power_w"]) is not None:
                samples.append((time.perf_counter(), power))

    thread = Thread(target=read)
    thread.start()
    try:
        work()
    finally:
        stop.set()
        thread.join()
    return samples

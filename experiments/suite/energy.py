"""What a token costs in joules: power while a stack decodes, and while nothing does."""

import time
from collections.abc import Sequence
from contextlib import closing
from threading import Event, Thread
from typing import Any

import numpy as np
import pandas as pd

from common.errors import LabError
from common.gpu import Gpu
from experiments.inquiry import Inquiry
from experiments.outcome import MEASURED, PREDICTED, Outcome
from experiments.suite.quality import open_stack

QUESTION = "what a token costs in joules"
PERIOD = 0.02  # seconds between two readings; drivers refresh theirs every 20 to 100 ms
SETTLE = 0.5  # seconds that the driver's average of power takes to follow
NOTES = ("Power is the board's, as NVML reports it; idle power is not taken off.",)


def ask(inquiry: Inquiry) -> Outcome:
    """A row for each stack of the run. Without a GPU: at most, the board's limit times the predicted time."""
    seconds = inquiry.options.number("seconds")
    if not inquiry.on_gpu:
        return _bound(inquiry)
    gpu = Gpu.current()
    if gpu is None or gpu.reading()["power_w"] is None:
        raise LabError(
            "NVML reports no power of this GPU", "install nvidia-ml-py, and a driver that lets it read power"
        )
    records = inquiry.measure(inquiry.config.stacks)  # nothing that is wrong gets a figure
    sound = [stack for stack, record in zip(inquiry.config.stacks, records, strict=True) if record["latencies"]]
    time.sleep(SETTLE)
    idle = [power for _, power in _sample(gpu, lambda: time.sleep(seconds))]
    rows = [{"variant": "idle", "average W": float(np.mean(idle)), "peak W": max(idle)}]
    for stack in sound:
        inquiry.show.begin(f"energy of {stack.name}")
        with closing(open_stack(inquiry, stack)) as session:
            rows.append({"variant": stack.name, **_decode(inquiry, session, gpu, seconds)})
    return Outcome("energy", QUESTION, pd.DataFrame(rows), MEASURED, NOTES)


def joules(samples: Sequence[tuple[float, float]]) -> float:
    """Energy of (second, watt) samples by the trapezoidal rule."""
    at, power = np.array(samples).T
    return float(np.trapezoid(power, at))


def _decode(inquiry: Inquiry, session: Any, gpu: Gpu, seconds: float) -> dict[str, Any]:
    """Decode the first half of the cache again and again for at least `seconds`, and read power meanwhile."""
    steps, done = inquiry.model.positions // 2, 0
    session.reset([0], position=0)

    def run() -> None:
        nonlocal done
        began = time.perf_counter()
        while time.perf_counter() - began < SETTLE + seconds:
            session.time(steps, 1)
            done += steps

    samples = _sample(gpu, run)
    took = samples[-1][0] - samples[0][0]
    settled = [(at, power) for at, power in samples if at - samples[0][0] >= SETTLE]
    powers = [power for _, power in settled]
    rate = done / took
    average = joules(settled) / (settled[-1][0] - settled[0][0])
    return {
        "average W": average,
        "peak W": max(powers),
        "tok/s": rate,
        "J/token": average / rate,
        "tokens/J": rate / average,
    }


def _sample(gpu: Gpu, work: Any) -> list[tuple[float, float]]:
    """(second, watt) while `work()` runs."""
    stop, samples = Event(), []

    def read() -> None:
        while not stop.wait(PERIOD):
            samples.append((time.perf_counter(), gpu.reading()["power_w"]))

    thread = Thread(target=read)
    thread.start()
    try:
        work()
    finally:
        stop.set()
        thread.join()
    return samples


def _bound(inquiry: Inquiry) -> Outcome:
    gpu = inquiry.gpu(inquiry.options.text("gpu"))
    rows = []
    for stack in inquiry.config.stacks:
        time_ = inquiry.predict(stack.variants, stack.knobs, gpu, inquiry.options.whole("position", low=0))
        rows.append(
            {"variant": stack.name, "predicted us": 1e6 * time_.seconds, "J/token": time_.seconds * gpu.power_w}
        )
    note = f"Predicted time times the limit of {gpu.name}, {gpu.power_w:g} W."
    return Outcome(
        "energy", QUESTION, pd.DataFrame(rows), PREDICTED, [note], "power; decoding seldom reaches the limit"
    )

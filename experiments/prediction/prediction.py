"""Predicted time of a decode step with its interval, and of one stack against another."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.display.table import Shown
from experiments.prediction.gpus import GpuModel
from experiments.prediction.model import Kernel, step_times
from experiments.prediction.task import Times

SHOWN = 0.0005  # a change of 0.1 % in a table


@dataclass(frozen=True)
class Effect:
    """Change of a time against the parent's, -0.1 is 10 % less; the smallest and the largest of all draws."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """Time of one decode step.

    draws   seconds with the constants of the GPU, then with each of `GpuModel.draws`
    times   of its parts in ns, with the constants of the GPU and without the launch
    launch  seconds; busy: share of the time in which memory works
    """

    draws: tuple[float, ...]
    times: Times
    launch: float
    busy: float

    def against(self, parent: "Prediction") -> Effect | None:
        """None if the model sees no difference that a table would show: it does not cover what the variant changes."""
        changes = [own / old - 1 for own, old in zip(self.draws, parent.draws, strict=True)]
        if max(map(abs, changes)) < SHOWN:
            return None
        return Effect(changes[0], min(changes), max(changes))

    @property
    def seconds(self) -> float:
        return self.draws[0]

    @property
    def low(self) -> float:
        return min(self.draws)

    @property
    def high(self) -> float:
        return max(self.draws)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return 1 / self.seconds

    def columns(self) -> dict[str, float]:
        names = ("loads", "chains", "exchanges")
        parts = {f"{name} us": getattr(self.times, name) / 1e3 for name in names} | {"launches us": 1e6 * self.launch}
        times = {"predicted us": self.seconds, "low us": self.low, "high us": self.high}
        seconds = {name: 1e6 * time for name, time in times.items()}
        return parts | {"memory busy %": 100 * self.busy} | seconds | {"predicted tok/s": self.rate}


def predict(kernel: Kernel, gpu: GpuModel, position: int) -> Prediction:
    """One step of `kernel` at `position` on `gpu`."""
    draws = [drawn for drawn, _ in gpu.draws()]
    return of_draws([(step_times(kernel, drawn, position), _launch(kernel, drawn)) for drawn in draws], gpu)


def of_draws(steps: Sequence[tuple[Times, float]], gpu: GpuModel) -> Prediction:
    """The prediction of (times of a step, seconds of its launch), with the constants as given and with each draw."""
    draws = tuple(times.total / 1e9 + launch for times, launch in steps)
    times, launch = steps[0]
    return Prediction(draws, times, launch, times.served / gpu.read_rate / draws[0])


def _launch(kernel: Kernel, gpu: GpuModel) -> float:
    """Seconds of the launch of one step, where it does not begin beside the step before; nodes count as exchanges."""
    source = kernel.source
    first = gpu.node_us if source.launch == "graph" else gpu.launch_us
    return first / 1e6 / (1 if source.by_stage else source.tokens_per_launch)

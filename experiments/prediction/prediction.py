"""Predicted time of a decode step with its interval, and of one stack against another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.display.shown import Shown
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
    """Seconds of one step.

    draws      with the constants of the GPU, then with each of `GpuModel.draws`
    exchanges  barriers, nodes and exchanges by value; chains: loads and instructions that wait for each other; loads:
               the wait for bytes beyond them, and their multiplication; launches
    busy       share of the time in which memory works
    stages     each stage, all layers together, with the exchange after it
    """

    draws: tuple[float, ...]
    exchanges: float
    chains: float
    loads: float
    launches: float
    busy: float
    stages: Mapping[str, float]

    def against(self, parent: "Prediction") -> Effect | None:
        """None: NOT_MODELLED, no draw differs by so much that a table would show it.

        The model then does not know what the variant changes. No change would be a statement that it cannot make.
        """
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
        names = ("loads", "chains", "exchanges", "launches")
        parts = {f"{name} us": 1e6 * getattr(self, name) for name in names} | {"memory busy %": 100 * self.busy}
        times = {"predicted us": self.seconds, "low us": self.low, "high us": self.high}
        return parts | {name: 1e6 * time for name, time in times.items()} | {"predicted tok/s": self.rate}


def predict(kernel: Kernel, gpu: GpuModel, position: int) -> Prediction:
    """One step of `kernel` at `position` on `gpu`."""
    draws = [one for one, _ in gpu.draws()]
    return of_draws(
        [step_times(kernel, one, position) for one in draws], [_launching(kernel, one) for one in draws], gpu
    )


def of_draws(steps: Sequence[Times], launching: Sequence[float], gpu: GpuModel) -> Prediction:
    """The prediction of a step's times and seconds of its launch, with the constants as given and with each draw."""
    times = steps[0]
    return Prediction(
        draws=tuple(each.total / 1e9 + more for each, more in zip(steps, launching, strict=True)),
        exchanges=times.exchanges / 1e9,
        chains=times.chains / 1e9,
        loads=times.loads / 1e9,
        launches=launching[0],
        busy=times.served / gpu.read_rate / (times.total / 1e9 + launching[0]),
        stages={stage: took / 1e9 for stage, took in times.stages.items()},
    )


def _launching(kernel: Kernel, gpu: GpuModel) -> float:
    """Seconds of the launch of one step, where it does not begin beside the step before; nodes count as exchanges."""
    source = kernel.source
    first = gpu.node_us if source.launch == "graph" else gpu.launch_us
    return first / 1e6 / (1 if source.by_stage else source.tokens_per_launch)

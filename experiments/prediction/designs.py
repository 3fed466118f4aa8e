"""Kernels that this lab does not have, as conf/design/ declares them: published ones, and steps that are planned."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from experiments.prediction.declared import Work, read_work
from experiments.prediction.gpus import GpuModel, described
from experiments.prediction.model import Kernel, memory_of
from experiments.prediction.prediction import Prediction, of_draws, predict
from experiments.prediction.simulation import simulate
from experiments.prediction.task import Task, Times


@dataclass(frozen=True)
class Published:
    """A kernel of others for another model, as far as its authors describe it.

    layer, last    {stage: bytes of its matrix}; chains: {stage: ns of what waits for each other in it}
    exchange_ns    between two stages; bytes_per_clock: that an SM multiplies; both with a range
    ring_bytes, tile_bytes, window_bytes, ahead   of the loads, as in `experiments.prediction.declared`
    published      {key of conf/gpu/: us a token}
    """

    name: str
    url: str
    layers: int
    layer: Mapping[str, int]
    last: Mapping[str, int]
    chains: Mapping[str, int]
    exchange_ns: float
    bytes_per_clock: float
    ring_bytes: int
    tile_bytes: int
    window_bytes: int
    ahead: bool
    launch_us: float
    published: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]

    def predict(self, gpu: GpuModel) -> Prediction:
        """One token on `gpu`; the design's own ranges are drawn from together with those of the GPU."""
        own = {name: (getattr(self, name), ends) for name, ends in self.ranges.items()}
        times = [replace(self, **values)._times(drawn) for drawn, values in gpu.draws(own)]
        return of_draws([(each, self.launch_us / 1e6) for each in times], gpu)

    def _times(self, gpu: GpuModel) -> Times:
        layer, last = ([self._task(gpu, *stage) for stage in stages.items()] for stages in (self.layer, self.last))
        return simulate([], layer, last, self.layers, memory_of(gpu), steps=2 if self.ahead else 1)

    def _task(self, gpu: GpuModel, stage: str, size: int) -> Task:
        return Task(
            stage,
            size=size / gpu.multiprocessors,
            total=size,
            rate=self.bytes_per_clock * gpu.clock_ghz,
            tile=self.tile_bytes,
            place=self.ring_bytes,
            window=self.window_bytes,
            ahead=self.ahead,
            before=self.chains.get(stage, 0),
            exchange=self.exchange_ns,
        )


@dataclass(frozen=True)
class Ladder:
    """Steps of work on top of a stack of this lab, each beside those before it; gpus: keys of conf/gpu/.

    built: the named stack or variant with its parents that was written after the design. goals: tokens a second that
    it should reach on the first of the GPUs, by position.
    """

    name: str
    stack: str
    built: str
    gpus: tuple[str, ...]
    goals: Mapping[int, float]
    steps: Mapping[str, Work]

    def predict(self, kernel: Kernel, gpu: GpuModel, position: int) -> Iterator[tuple[str, Prediction]]:
        """(name of the step, prediction); `kernel` is what is known of the stack."""
        for number, step in enumerate(self.steps, start=1):
            planned = dict(islice(self.steps.items(), number))
            yield step, predict(replace(kernel, steps=planned, declared={}), gpu, position)


def published(root: Path = ROOT) -> list[Published]:
    """The published kernels of conf/design/. Raises LabError for a bad value."""
    sections = (section for section in _sections(root) if not section.given("stack"))
    return [Published(**described(section, Published, without=("ranges",))) for section in sections]


def ladders(root: Path = ROOT) -> list[Ladder]:
    """The planned steps of conf/design/. Raises LabError for a bad value."""
    return [_ladder(section) for section in _sections(root) if section.given("stack")]


def _sections(root: Path) -> list[Section]:
    paths = sorted((root / "conf" / "design").glob("*.yaml"))
    return [Section.from_config(OmegaConf.load(path), f"design/{path.stem}: ") for path in paths]


def _ladder(section: Section) -> Ladder:
    section.only(Ladder.__dataclass_fields__)
    steps, goals = section.section("steps"), section.section("goals")
    return Ladder(
        name=section.text("name"),
        stack=section.text("stack"),
        built=section.text("built"),
        gpus=section.texts("gpus"),
        goals={int(position): goals.number(position) for position in goals.values},
        steps={step: read_work(steps.section(step).values, ()) for step in steps.values},
    )

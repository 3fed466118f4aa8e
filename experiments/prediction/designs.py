"""Kernels of other authors (conf/design/), and goals of this lab's stacks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from experiments.prediction.gpus import GpuModel, described
from experiments.prediction.model import memory_of
from experiments.prediction.prediction import Prediction, of_draws
from experiments.prediction.simulation import simulate
from experiments.prediction.task import Task, Times


@dataclass(frozen=True)
class Published:
    """A kernel of other authors for another model, as far as they describe it.

    layer, last    {stage: bytes of its matrix}; chains: {stage: ns of its dependent chain}
    exchange_ns    between two stages; bytes_per_clock: multiplied by an SM; both with a range
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
        """One token on `gpu`; the design's own ranges are sampled together with the GPU's."""
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
    """Goals of a named stack, built up variant by variant; gpus: keys of conf/gpu/.

    stack  what it is compared with; drafts: the stack that verifies drafts; goals: tokens a second on the first of the
           GPUs, by position
    """

    built: str
    stack: str
    drafts: str
    gpus: tuple[str, ...]
    goals: Mapping[int, float]


def published(root: Path = ROOT) -> list[Published]:
    """The published kernels of conf/design/. Raises LabError for a bad value."""
    sections = (section for section in _sections(root) if not section.given("stack"))
    return [Published(**described(section, Published, without=("ranges",))) for section in sections]


def ladders(root: Path = ROOT) -> list[Ladder]:
    """The ladders of conf/design/. Raises LabError for a bad value."""
    return [_ladder(section) for section in _sections(root) if section.given("stack")]


def _sections(root: Path) -> list[Section]:
    paths = sorted((root / "conf" / "design").glob("*.yaml"))
    return [Section.from_config(OmegaConf.load(path), f"design/{path.stem}: ") for path in paths]


def _ladder(section: Section) -> Ladder:
    section.only(Ladder.__dataclass_fields__)
    goals = section.section("goals")
    return Ladder(
        built=section.text("built"),
        stack=section.text("stack"),
        drafts=section.text("drafts"),
        gpus=section.texts("gpus"),
        goals={int(position): goals.number(position) for position in goals.values},
    )

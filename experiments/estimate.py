"""Estimate of a decode step's time: arithmetic that a reader can redo with a pencil, and no measurement.

us = 1000 x MB / (GB/s) + barriers x cost + exchanges x cost + launches x cost

The costs are numbers that the lab measured on that GPU, each alone (conf/gpu/). Nothing overlaps here, no instruction
takes time and no load waits for another. So a kernel whose loads wait takes longer than its estimate, and one that
reads while it exchanges takes less.

`streaming` of Qwen3-0.6B at position 1 on an H200: 1,192.2 MB / 4,522 GB/s are 263.6 us; 5 exchanges in each of 28
layers and one for the token, 141 x 0.9181 us, are 129.5; an eighth of a launch of 1.495 us is 0.2: together 393.3 us.
"""

from dataclasses import dataclass

from omegaconf import OmegaConf

from common import ROOT
from common.compile.source import Source
from common.config.section import Section
from common.devices.counters import Counts
from common.errors import LabError, known
from common.model.shapes import Model
from common.model.stages import FIRST, LAST, LAYER

GPUS = ROOT / "conf" / "gpu"


@dataclass(frozen=True)
class Gpu:
    """A GPU and its times, each measured alone; the yaml names the record of each.

    read_gbps        rate of a kernel that only reads, in 10^9 bytes a second
    barrier_us       a grid barrier of a cooperative launch, between blocks that do nothing else
    own_barrier_us   the lab's barrier for other launches
    exchange_us      an exchange by value: words of all SMs to all SMs
    node_us, launch_us   a node of a CUDA graph, a queued launch of a kernel
    """

    name: str
    read_gbps: float
    barrier_us: float
    own_barrier_us: float
    exchange_us: float
    node_us: float
    launch_us: float


def read_gpu(key: str) -> Gpu:
    """The GPU of conf/gpu/<key>.yaml. Raises LabError for one that has none: nobody has measured it; or a bad value."""
    name = known("gpu", key, [path.stem for path in GPUS.glob("*.yaml")])
    return Section.from_config(OmegaConf.load(GPUS / f"{name}.yaml"), f"gpu/{key}: ").read(Gpu)


@dataclass(frozen=True)
class Step:
    """Needs of one step of a kernel.

    bytes      matrices and KV cache up to the position, each once: `Model.bytes_per_token`
    barriers   of the grid, counted at position 1; left out: those between two tokens of a launch, and those that parts
               of a long context add
    own        True if they are the lab's own, of a launch that is not cooperative
    exchanges  by value, in place of barriers, counted in the same way
    nodes      of a CUDA graph; launches: of a kernel, a fraction where one launch makes several tokens
    """

    bytes: int
    barriers: int
    own: bool
    exchanges: int
    nodes: int = 0
    launches: float = 0.0


def step_of(source: Source, counts: Counts, model: Model, position: int) -> Step:
    """The step of `source` at `position` of `model`. Raises LabError for launches whose cost nobody has measured."""
    if source.launch == "pdl":
        raise LabError("nobody has measured what a launch with how=pdl costs", "time it on a GPU")
    stages = len(FIRST) + len(LAYER) * model.layers + len(LAST)  # a kernel each, where a stage is one
    return Step(
        bytes=model.bytes_per_token(position),
        barriers=counts.total("grid_barriers"),
        own=source.launch == "plain",
        exchanges=counts.total("by_value"),
        nodes=stages if source.launch == "graph" else 0,
        launches=0 if source.launch == "graph" else stages if source.by_stage else 1 / source.tokens_per_launch,
    )


def estimate(step: Step, gpu: Gpu) -> float:
    """Microseconds of one step."""
    us = step.bytes / gpu.read_gbps / 1e3
    us += step.barriers * (gpu.own_barrier_us if step.own else gpu.barrier_us) + step.exchanges * gpu.exchange_us
    return us + step.nodes * gpu.node_us + step.launches * gpu.launch_us

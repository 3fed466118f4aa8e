"""Configuration of one run: a field's type checks the value of its key; the yaml explains it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from common.config.budget import Budget
from common.config.device_choice import DeviceChoice
from common.config.section import Natural, Range, Section
from common.model.layout import MAX_BLOCKS
from common.model.shapes import Model
from common.model.stages import MAX_THREADS, WARP
from common.stacks.stack import Stack

SEEDS = 2**31
Threads = Annotated[int, Range(WARP, MAX_THREADS)]
Seed = Annotated[int, Range(0, SEEDS - 1)]


@dataclass(frozen=True)
class Timing:
    """Limits of a measurement: conf/timing/evidence.yaml."""

    warmup: Natural
    steps: int
    rounds: int
    max_rounds: int
    interval: float
    tokens: int
    positions: tuple[Natural, ...] | None
    ladder: tuple[Natural, ...]

    def at(self, model: Model) -> tuple[int, ...]:
        """The positions to time: the requested ones, else the ladder as far as it fits the cache of `model`."""
        return self.positions or tuple(position for position in self.ladder if position < model.positions)


@dataclass(frozen=True)
class Validation:
    """Amount of validation: conf/validate/plain.yaml."""

    seeds: int
    quick: bool | None
    trials: Literal["none", "plain", "all"]


@dataclass(frozen=True)
class PtxOptions:
    """Settings of the PTX device: conf/device/ptx.yaml."""

    arch: Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
    races: bool
    timeout_s: float


@dataclass(frozen=True)
class RunConfig:
    """One run of the lab: conf/config.yaml and conf/base.yaml.

    stacks     the stacks to run, in this order
    knobs      knob values from the command line: `stacks` have them, and an experiment gives them to its own stacks
    ptx        None on cuda
    model      None: the shape is read from the checkpoint that `weights` names
    positions  size of the KV cache; None: the model's own
    formats    of the layers' matrices, None as they are stored, of LM head and KV cache (`common.model.format`)
    weights    "synthetic", an absolute path, or a name on the hub
    timing     None: nothing is measured
    budget     seconds that rows may take
    """

    stacks: tuple[Stack, ...]
    knobs: Mapping[str, Any]
    device: DeviceChoice
    ptx: PtxOptions | None
    model: Model | None
    positions: int | None
    formats: tuple[str | None, str, str]
    weights: str
    seed: Seed
    blocks: Annotated[int, Range(1, MAX_BLOCKS)] | None
    threads: Threads
    validation: Validation
    timing: Timing | None
    results: Path
    cache: Path
    cache_limit_gb: float
    json: bool
    debug: bool
    archs: tuple[str, ...]
    timeout_s: float
    budget: Budget
    resume: bool
    task: str
    options: Section

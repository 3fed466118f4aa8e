"""Configuration of one run, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.config.budget import Budget
from common.config.device_choice import DeviceChoice
from common.config.section import Section
from common.model.shapes import Model
from common.stacks.stack import Stack


@dataclass(frozen=True)
class Timing:
    """Limits of a measurement; conf/timing/evidence.yaml explains each field. interval: percent of the median."""

    warmup: int
    steps: int
    rounds: int
    max_rounds: int
    interval: float
    tokens: int
    positions: tuple[int, ...] | None
    ladder: tuple[int, ...]

    def at(self, model: Model) -> tuple[int, ...]:
        """The positions to time: the requested ones, else those of the ladder that fit in the cache of `model`."""
        return self.positions or tuple(position for position in self.ladder if position < model.positions)


@dataclass(frozen=True)
class Validation:
    """Amount of validation; conf/validate/plain.yaml explains each field. quick: None means by size of the model."""

    seeds: int
    quick: bool | None
    trials: str


@dataclass(frozen=True)
class HostOptions:
    """Settings of the host device; conf/device/host.yaml explains each field. timeout_s: of one launch, in seconds."""

    workers: int | None
    timeout_s: float


@dataclass(frozen=True)
class PtxOptions:
    """Settings of the PTX device; conf/device/ptx.yaml explains each field. timeout_s: of one launch, in seconds."""

    arch: str
    races: bool
    timeout_s: float


@dataclass(frozen=True)
class RunConfig:
    """One run of the lab.

    stacks     the stacks to run, in this order
    knobs      values of knobs as they were given: `stacks` have them, and an experiment gives them to its own stacks
    host       None on other devices
    ptx        None on other devices
    sanitize   "thread", "address" or "undefined": a sanitizer of g++ on the host device; or None
    coverage   folder for what gcov counts while the stacks are validated on the host device, or None
    model      None: the shape is read from the checkpoint that `weights` names
    positions  size of the KV cache; None: the model's own
    weights    "synthetic", a path, or a name on the hub
    seed       of weights, scenarios and the order of threads on the host device
    blocks     size of the grid; None: the default of the device
    threads    per block
    timing     None: nothing is measured
    results    file of the store
    cache      folder of packed weights and compiled kernels, kept below `cache_limit_gb` x 10^9 bytes
    archs      GPU architectures, such as "sm_90", that each stack is compiled for to count registers; () for none
    timeout_s  limit of one stack, in seconds
    budget     time that the rows may take
    resume     skip stacks that `results` already has
    reproduce  id of a record to run again, or None
    task       "run", or the name of an experiment
    options    of that experiment
    """

    stacks: tuple[Stack, ...]
    knobs: Mapping[str, Any]
    device: DeviceChoice
    host: HostOptions | None
    ptx: PtxOptions | None
    sanitize: str | None
    coverage: Path | None
    model: Model | None
    positions: int | None
    weights: str
    seed: int
    blocks: int | None
    threads: int
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
    reproduce: str | None
    task: str
    options: Section

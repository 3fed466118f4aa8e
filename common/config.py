"""What Hydra composed, checked and turned into frozen dataclasses; below this line nobody sees a DictConfig."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import SystemRandom

from omegaconf import DictConfig, OmegaConf

from common.catalog import ROOT, read_catalog
from common.errors import LabError
from common.knobs import WARP
from common.layout import MAX_BLOCKS
from common.model import Model
from common.nvrtc import ARCHS
from common.probe import DEVICES, DeviceChoice, choose_device
from common.records import Store
from common.section import Section
from common.stack import Stack, choose_stacks
from common.suggest import unknown

MAX_THREADS = 1024  # of one CUDA block
SEEDS = 2**31
SYNTHETIC = "synthetic"
SANITIZERS = ("thread",)
AUTO_MODEL = {"cuda": "qwen3_0_6b", "host": "tiny"}


@dataclass(frozen=True)
class Timing:
    """How long to measure, as conf/timing/default.yaml explains. `interval` is in percent of the median."""

    warmup: int
    steps: int
    rounds: int
    max_rounds: int
    interval: float
    tokens: int
    positions: tuple[int, ...] | None
    ladder: tuple[int, ...]

    def at(self, model: Model) -> tuple[int, ...]:
        """The positions to time: those asked for, else all of the ladder that the cache of `model` holds."""
        return self.positions or tuple(position for position in self.ladder if position < model.positions)


@dataclass(frozen=True)
class Validation:
    """How much to prove, as conf/config.yaml explains. quick: None leaves it to the size of the model."""

    seeds: int
    quick: bool | None


@dataclass(frozen=True)
class HostOptions:
    """How the host device runs, as conf/device/host.yaml explains. `timeout_s` is in seconds."""

    workers: int | None
    timeout_s: float


@dataclass(frozen=True)
class RunConfig:
    """One run of the lab.

    host       None on cuda
    sanitize   None or "thread", which is ThreadSanitizer on the host device
    model      None: the shape that `weights` brings
    positions  size of the KV cache; None: the model's own
    blocks     grid size; None: one per SM, or what the host device takes
    timing     None: nothing is measured
    cache      folder of packed weights and compiled kernels
    archs      what NVRTC compiles for when a stack is inspected; () for nothing
    timeout_s  of one stack, in seconds
    resume     skip what `results` already holds
    reproduce  id of a record, or None for a run
    task       `run`, or the experiment that is asked for, with its options
    """

    stacks: tuple[Stack, ...]
    device: DeviceChoice
    host: HostOptions | None
    sanitize: str | None
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
    json: bool
    debug: bool
    archs: tuple[str, ...]
    timeout_s: float
    resume: bool
    reproduce: str | None
    task: str
    options: Section


def split(cfg: DictConfig, keys: Iterable[str]) -> tuple[Section, DictConfig]:
    """Take `keys` out of what a command composed: a section with them, and the rest, which is for `resolve`."""
    tree = OmegaConf.to_container(cfg, resolve=True)
    asked = Section({key: tree.pop(key, None) for key in keys})
    return asked, OmegaConf.create(tree)


def resolve(cfg: DictConfig, root: Path = ROOT) -> RunConfig:
    """Check all that can be checked before weights are read. Raises LabError for a bad value."""
    catalog = read_catalog(root)
    top = Section(OmegaConf.to_container(cfg, resolve=True))
    top.only(catalog.keys | catalog.knobs)

    threads = top.whole("threads", low=WARP, high=MAX_THREADS)
    if threads % WARP:
        raise LabError(f"threads={threads} is not a multiple of {WARP}", f"give whole warps, such as {8 * WARP}")
    listed = top.texts("stack") if top.given("stack") else None
    knobs = {key: value for key, value in top.values.items() if key in catalog.knobs}
    stacks = choose_stacks(catalog, top.section("variant").text("name"), listed, knobs, threads)

    settings = {
        "stacks": stacks,
        "weights": top.text("weights"),
        "seed": _seed(top),
        "blocks": top.whole("blocks", 1, MAX_BLOCKS) if top.given("blocks") else None,
        "threads": threads,
        "validation": _validation(top.section("validate"), quick=True if top.given("sanitize") else None),
        "timing": _timing(top.section("timing")),
        "results": Path(top.text("results")),
        "cache": Path(top.text("cache")),
        "json": top.flag("json"),
        "debug": top.flag("debug"),
        "archs": _archs(top.texts("archs")),
        "timeout_s": top.number("timeout_s"),
        "resume": _resume(top),
        "reproduce": top.text("reproduce") if top.given("reproduce") else None,
        "task": top.text("task"),
        "options": top.section("options"),
    }
    shape = top.section("model")
    positions = shape.whole("positions", low=1) if shape.given("positions") else None
    model = None if shape.text("name") == "auto" else model_of(shape)

    device = top.section("device")
    if device.text("name") not in DEVICES:
        raise unknown("device", device.text("name"), DEVICES)
    choice = choose_device(device.text("name"))
    if model is None and settings["weights"] == SYNTHETIC:
        model = model_named(AUTO_MODEL[choice.name], root)
        model = replace(model, positions=positions) if positions else model
    host = _host(device) if choice.name == "host" else None
    sanitize = _sanitize(top, choice)
    config = RunConfig(device=choice, host=host, sanitize=sanitize, model=model, positions=positions, **settings)
    if model is not None:
        check_positions(config.timing, model)
    return config


def check_positions(timing: Timing | None, model: Model) -> None:
    """Raise LabError if a position to be timed does not fit the KV cache of `model`."""
    for position in (timing and timing.positions) or ():
        if position >= model.positions:
            raise LabError(
                f"timing.positions: {position} is not in 0..{model.positions - 1}, the positions of the KV cache",
                f"give a lower one, or model.positions={position + 1}",
            )


def check_ids(ids: Sequence[int], model: Model, key: str) -> None:
    """Raise LabError if a token id is not in the vocabulary of `model`."""
    for token in ids:
        if not 0 <= token < model.vocab:
            raise LabError(
                f"{key}: token id {token} is not in 0..{model.vocab - 1}", "give ids of this model's vocabulary"
            )


def model_named(name: str, root: Path = ROOT) -> Model:
    """The Model of conf/model/<name>.yaml. Raises LabError."""
    shape = OmegaConf.to_container(OmegaConf.load(root / "conf" / "model" / f"{name}.yaml"))
    return model_of(Section(shape, "model."))


def model_of(shape: Section) -> Model:
    """The Model that a section with all its fields describes."""
    known = {field.name: field.type for field in fields(Model)}
    shape.only(known)
    read = {int: lambda key: shape.whole(key, low=1), float: shape.number, bool: shape.flag, str: shape.text}
    return Model(**{name: read[kind](name) for name, kind in known.items()})


def _host(section: Section) -> HostOptions:
    section.only({"name", *(field.name for field in fields(HostOptions))})
    workers = section.whole("workers", low=1) if section.given("workers") else None
    return HostOptions(workers, section.number("timeout_s"))


def _sanitize(top: Section, device: DeviceChoice) -> str | None:
    if not top.given("sanitize"):
        return None
    name = top.text("sanitize")
    if name not in SANITIZERS:
        raise unknown("sanitize", name, SANITIZERS)
    if device.name != "host":
        raise LabError(
            f"sanitize={name} is for the host device, not for {device.name}", "add device=host, or leave it out"
        )
    return name


def _timing(section: Section) -> Timing | None:
    if section.text("name") == "none":
        section.only({"name"})
        return None
    section.only({"name", *(field.name for field in fields(Timing))})
    timing = Timing(
        warmup=section.whole("warmup", low=0),
        steps=section.whole("steps", low=1),
        rounds=section.whole("rounds", low=1),
        max_rounds=section.whole("max_rounds", low=1),
        interval=section.number("interval"),
        tokens=section.whole("tokens", low=1),
        positions=section.wholes("positions", low=0) if section.given("positions") else None,
        ladder=section.wholes("ladder", low=0),
    )
    if timing.max_rounds < timing.rounds:
        raise LabError(
            f"timing.max_rounds={timing.max_rounds} is below timing.rounds={timing.rounds}",
            "raise the one, or lower the other",
        )
    return timing


def _validation(section: Section, quick: bool | None) -> Validation:
    """`quick`: what it is where it is not given."""
    section.only({field.name for field in fields(Validation)})
    return Validation(section.whole("seeds", low=1), section.flag("quick") if section.given("quick") else quick)


def _seed(top: Section) -> int:
    """The seed that is given; else, to resume, that of the last run in the store; else a fresh one."""
    if top.given("seed"):
        return top.whole("seed", 0, SEEDS - 1)
    rows = Store(top.text("results")).rows() if _resume(top) else []
    last = next((row["seed"] for row in reversed(rows) if row.get("kind") == "run"), None)
    return SystemRandom().randrange(SEEDS) if last is None else last


def _resume(top: Section) -> bool:
    """An experiment goes on where it was cut off unless it is told not to; a run begins anew unless it is told to."""
    return top.flag("resume") if top.given("resume") else top.text("task") != "run"


def _archs(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in ARCHS:
            raise unknown("arch", name, ARCHS)
    return names

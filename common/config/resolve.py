"""RunConfig from the configuration that Hydra composed, with every value checked.

No other module of a run reads a DictConfig.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

from omegaconf import DictConfig, OmegaConf

from common import ROOT
from common.cache.folder import keep_below
from common.compile.nvrtc import ARCHS
from common.config import budget
from common.config.best import fastest_stack
from common.config.budget import Budget
from common.config.device_choice import DEVICES, DeviceChoice, choose_device
from common.config.run_config import HostOptions, PtxOptions, RunConfig, Timing, Validation
from common.config.section import Section, absolute
from common.errors import LabError
from common.errors.suggest import unknown
from common.model.layout import MAX_BLOCKS
from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.knobs import WARP
from common.stacks.stack import choose_stacks

MAX_THREADS = 1024  # CUDA's limit of one block
SEEDS = 2**31
SYNTHETIC = "synthetic"
SANITIZERS = ("thread", "address", "undefined")
AMOUNTS = ("none", "plain", "all")  # of trials
AUTO_MODEL = {"cuda": "qwen3_0_6b", "host": "tiny", "ptx": "tiny"}


def split(cfg: DictConfig, keys: Iterable[str]) -> tuple[Section, DictConfig]:
    """The configuration of a command in two parts: a section with its own `keys`, and the rest, for `resolve`."""
    values = Section.from_config(cfg).values
    own = Section({key: values.pop(key, None) for key in keys})
    return own, DictConfig(values)


def resolve(cfg: DictConfig, root: Path = ROOT) -> RunConfig:
    """The RunConfig of a composed configuration, with all checks that do not need the weights.

    root: the checkout. From here on this process keeps the cache below its limit. Raises LabError for a bad value.
    """
    catalog = read_catalog(root)
    top = Section.from_config(cfg)
    top.only(catalog.keys | catalog.knobs)

    threads = top.whole("threads", low=WARP, high=MAX_THREADS)
    if threads % WARP:
        raise LabError(
            f"threads={threads} is not a multiple of {WARP}", f"give a multiple of {WARP}, such as {8 * WARP}"
        )
    listed = top.texts("stack") if top.given("stack") else None
    knobs = {key: value for key, value in top.values.items() if key in catalog.knobs}
    fastest = partial(fastest_stack, catalog, threads)
    stacks = choose_stacks(catalog, top.section("variant").text("name"), listed, knobs, threads, fastest)

    shape, weights = top.section("model"), _weights(top)
    positions = shape.whole("positions", low=1) if shape.given("positions") else None
    model = None if shape.text("name") == "auto" else model_of(shape)

    device = top.section("device")
    if device.text("name") not in DEVICES:
        raise unknown("device", device.text("name"), DEVICES)
    choice = choose_device(device.text("name"))
    if model is None and weights == SYNTHETIC:
        model = model_named(AUTO_MODEL[choice.name], root)
        model = replace(model, positions=positions) if positions else model
    config = RunConfig(
        stacks=stacks,
        knobs=knobs,
        device=choice,
        host=_host(device) if choice.name == "host" else None,
        ptx=_ptx(device) if choice.name == "ptx" else None,
        sanitize=_sanitize(top, choice),
        coverage=_coverage(top, choice),
        model=model,
        positions=positions,
        weights=weights,
        seed=_seed(top),
        blocks=top.whole("blocks", 1, MAX_BLOCKS) if top.given("blocks") else None,
        threads=threads,
        validation=_validation(top.section("validate"), bool(top.given("sanitize"))),
        timing=_timing(top.section("timing")),
        results=top.location("results"),
        cache=top.location("cache"),
        cache_limit_gb=top.number("cache_limit_gb"),
        json=top.flag("json"),
        debug=top.flag("debug"),
        archs=_archs(top.texts("archs")),
        timeout_s=top.number("timeout_s"),
        budget=_budget(top),
        resume=_resume(top),
        reproduce=top.text("reproduce") if top.given("reproduce") else None,
        task=top.text("task"),
        options=top.section("options"),
    )
    if model is not None:
        check_positions(config, model)
    keep_below(config.cache, 1e9 * config.cache_limit_gb)
    return config


def refuse_runs_keys(config: RunConfig, what: str) -> None:
    """Raise LabError where `what`, such as "a profile", is given what only `python -m experiments` does."""
    asked = (config.task != "run", config.reproduce, config.resume, config.coverage)
    given = dict(zip(("experiment=", "reproduce=", "resume=", "coverage="), asked, strict=True))
    for key in (key for key, value in given.items() if value):
        raise LabError(f"{key} has no effect on {what}", "leave it out, or run python -m experiments")


def check_positions(config: RunConfig, model: Model) -> None:
    """Raise LabError if a position to time is outside the KV cache of `model`, or none is left to time."""
    timing = config.timing
    for position in (timing and timing.positions) or ():
        if position >= model.positions:
            raise LabError(
                f"timing.positions: {position} is not in 0..{model.positions - 1}, the positions of the KV cache",
                f"give a lower one, or model.positions={position + 1}",
            )
    if timing and config.device.name == "cuda" and not timing.at(model):
        raise LabError(
            f"timing.ladder: none of {list(timing.ladder)} is in 0..{model.positions - 1}, the KV cache's positions",
            "give lower ones, or timing=none",
        )


def check_ids(ids: Sequence[int], model: Model, key: str) -> None:
    """Raise LabError if a token id is not in the vocabulary of `model`."""
    for token in ids:
        if not 0 <= token < model.vocab:
            raise LabError(
                f"{key}: token id {token} is not in 0..{model.vocab - 1}", "give ids in the vocabulary of this model"
            )


def model_named(name: str, root: Path = ROOT) -> Model:
    """The Model of conf/model/<name>.yaml. Raises LabError."""
    return model_of(Section.from_config(OmegaConf.load(root / "conf" / "model" / f"{name}.yaml"), "model."))


def model_of(shape: Section) -> Model:
    """The Model of a section that has all its fields and no others. Raises LabError."""
    types = {field.name: field.type for field in fields(Model)}
    shape.only(types)
    read: dict[Any, Callable[[str], Any]] = {
        int: lambda key: shape.whole(key, low=1),
        float: shape.number,
        bool: shape.flag,
        str: shape.text,
    }
    return Model(**{name: read[kind](name) for name, kind in types.items()})


def seed_of(top: Section) -> int:
    """The seed that is given, else a fresh one."""
    return top.whole("seed", 0, SEEDS - 1) if top.given("seed") else SystemRandom().randrange(SEEDS)


def _host(section: Section) -> HostOptions:
    section.only({"name", *(field.name for field in fields(HostOptions))})
    workers = section.whole("workers", low=1) if section.given("workers") else None
    return HostOptions(workers, section.number("timeout_s"))


def _ptx(section: Section) -> PtxOptions:
    section.only({"name", *(field.name for field in fields(PtxOptions))})
    (arch,) = _archs((section.text("arch"),))
    return PtxOptions(arch, section.flag("races"), section.number("timeout_s"))


def _sanitize(top: Section, device: DeviceChoice) -> str | None:
    if not top.given("sanitize"):
        return None
    name = top.text("sanitize")
    if name not in SANITIZERS:
        raise unknown("sanitize", name, SANITIZERS)
    if device.name != "host":
        raise LabError(
            f"sanitize={name} is for the host device, not for {device.name}", "add device=host, or leave out sanitize="
        )
    return name


def _coverage(top: Section, device: DeviceChoice) -> Path | None:
    """Where a coverage build leaves its data; None without coverage=true."""
    if not top.flag("coverage"):
        return None
    if device.name != "host":
        raise LabError(f"coverage=true is for the host device, not for {device.name}", "add device=host")
    if top.given("sanitize"):
        raise LabError("coverage=true and sanitize= are two builds", "leave one of them out")
    return top.location("results").parent / "coverage"


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
            "raise timing.max_rounds, or lower timing.rounds",
        )
    return timing


def _validation(section: Section, sanitized: bool) -> Validation:
    """Under ThreadSanitizer a plain validation takes no trials: it is many times slower."""
    section.only({"name", *(field.name for field in fields(Validation))})
    if (trials := section.text("trials")) not in AMOUNTS:
        raise unknown("validate.trials", trials, AMOUNTS)
    quick = section.flag("quick") if section.given("quick") else None
    trials = "none" if sanitized and trials == "plain" else trials
    return Validation(section.whole("seeds", low=1), quick, trials)


def _weights(top: Section) -> str:
    """The `spec` of `common.model.weights.load`; the path of an existing file or folder is made absolute."""
    spec = top.text("weights")
    path = str(absolute(spec))
    return path if spec != SYNTHETIC and os.path.exists(path) else spec


def _seed(top: Section) -> int:
    """The given seed; without one, the seed of the last run in the store when resuming, else a random one."""
    rows = Store(top.location("results")).records() if _resume(top) and not top.given("seed") else []
    last = next((row["seed"] for row in reversed(rows) if row.get("kind") == "run"), None)
    return seed_of(top) if last is None else last


def _resume(top: Section) -> bool:
    """True if finished stacks are skipped. The default is true for an experiment and false for a run."""
    return top.flag("resume") if top.given("resume") else top.text("task") != "run"


def _budget(top: Section) -> Budget:
    until = budget.clock() + top.number("budget_s") if top.given("budget_s") else None
    return Budget(until, top.number("row_s"))


def _archs(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in ARCHS:
            raise unknown("arch", name, ARCHS)
    return names

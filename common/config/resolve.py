"""RunConfig from the configuration that Hydra composed, with every value checked.

No other module of a run reads a DictConfig.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from omegaconf import DictConfig, OmegaConf

from common import ROOT
from common.cache.folder import keep_below
from common.compile.nvrtc import ARCHS
from common.config import budget
from common.config.budget import Budget
from common.config.device_choice import DEVICES, DeviceChoice, choose_device
from common.config.run_config import SEEDS, PtxOptions, RunConfig, Seed, Threads, Timing, Validation
from common.config.section import Section, absolute
from common.config.unused import UNUSED, refuse_runs_keys
from common.errors import LabError, known, unknown
from common.model.format import read_format, read_kv_format
from common.model.shapes import TRAITS, Model
from common.model.stages import WARP
from common.record.record import RowRecord, RunRecord
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks

SYNTHETIC = "synthetic"
AUTO_MODEL = {"cuda": "qwen3_0_6b", "ptx": "tiny"}
FORMATS = ("format", "head_format", "kv_format")  # keys at the top: of weights and cache, whatever the model


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
    if isinstance(top.values["experiment"], dict):
        raise LabError("the experiment's yaml has no `# @package _global_`", "write it in the first line")

    if (what := f"experiment={(task := top.text('task'))}") in UNUSED:
        refuse_runs_keys(cfg, what)
    device, weights = choose_device(top.section("device").choice("name", DEVICES)), _weights(top)
    usual = Section.from_config(OmegaConf.load(root / "conf/device/ptx.yaml")).values
    for key, value in top.section("device").values.items():
        if device.name == "cuda" and value != usual.get(key, value):
            raise LabError(f"device.{key}= has no effect on a GPU", "leave it out, or give device=ptx")
    model, positions = _model(top.section("model"), device, weights, root)
    formats = _formats(top)
    knobs = {key: value for key, value in top.values.items() if key in catalog.knobs}
    given: bool | None = top.value("resume", bool | None)
    resume = task != "run" if given is None else given
    threads = top.value("threads", Threads)
    if threads % WARP:
        remedy = f"give a multiple of {WARP}, such as {8 * WARP}"
        raise LabError(f"threads={threads} is not a multiple of {WARP}", remedy)
    listed, seconds = top.value("stack", tuple[str, ...] | None), top.value("budget_s", float | None)
    made: dict[str, Any] = {
        "stacks": choose_stacks(catalog, top.section("variant").text("name"), listed, knobs, threads),
        "knobs": knobs,
        "device": device,
        "ptx": top.section("device").read(PtxOptions) if device.name == "ptx" else None,
        # A checkpoint's own format is known when it is read.
        "model": model.in_formats(formats[0] or "bf16", *formats[1:]) if model and weights == SYNTHETIC else model,
        "positions": positions,
        "formats": formats,
        "weights": weights,
        "seed": _past_seed(top, task) if resume and not top.given("seed") else seed_of(top),
        "validation": top.section("validate").read(Validation),
        "timing": _timing(top.section("timing")),
        "budget": Budget(seconds and budget.clock() + seconds, top.number("row_s")),
        "resume": resume,
    }
    config = RunConfig(**made, **top.fields(RunConfig, but=made))
    for name in config.archs:
        if name not in ARCHS:
            raise unknown("arch", name, ARCHS)
    if config.model is not None:
        check_positions(config, config.model)
    keep_below(config.cache, 1e9 * config.cache_limit_gb)
    return config


def resolve_one(cfg: DictConfig, what: str) -> RunConfig:
    """The configuration of `what`, such as "a generation", which runs one stack. Raises LabError for several."""
    refuse_runs_keys(cfg, what)
    config = resolve(cfg)
    if len(config.stacks) > 1:
        names = ", ".join(stack.name for stack in config.stacks)
        raise LabError(f"{what} runs one stack, not {len(config.stacks)}", f"give variant=NAME or stack=[A,B]: {names}")
    return config


def check_positions(config: RunConfig, model: Model) -> None:
    """Raise LabError if a position to count or to time is outside the KV cache of `model`, or none is left to time."""
    if model.positions < 2:
        raise LabError("model.positions=1 leaves no earlier token to attend to", "give model.positions=2 or more")
    timing, key = config.timing, "timing.positions"
    positions = (timing and timing.positions) or ()
    for position in positions:
        if position >= model.positions:
            raise LabError(
                f"{config.options.origins.get(key, key)}: {position} is not in 0..{model.positions - 1}, the positions "
                "of the KV cache",
                f"give a lower one, or model.positions={max(positions) + 1}",
            )
    if timing and config.device.name == "cuda" and not timing.at(model):
        raise LabError(
            f"timing.ladder: none of {list(timing.ladder)} is in 0..{model.positions - 1}, the KV cache's positions",
            "give lower ones, or timing=none",
        )


def check_ids(ids: Sequence[int], model: Model, key: str) -> None:
    """Raise LabError if a token id is not in the vocabulary of `model`."""
    for token in ids:
        if type(token) is not int or not 0 <= token < model.vocab:
            raise LabError(
                f"{key}: token id {token!r} is not in 0..{model.vocab - 1}", "give ids in the vocabulary of this model"
            )


def model_named(name: str, root: Path = ROOT) -> Model:
    """The Model of conf/model/<name>.yaml. Raises LabError for an unknown name, and for a bad value."""
    folder = root / "conf" / "model"
    shape = OmegaConf.load(folder / f"{known('model', name, [path.stem for path in folder.glob('*.yaml')])}.yaml")
    return _read_model(Section.from_config(OmegaConf.merge(shape, {"name": name}), "model."))


def seed_of(top: Section) -> int:
    """The given seed, else a fresh one."""
    given: int | None = top.value("seed", Seed | None)
    return SystemRandom().randrange(SEEDS) if given is None else given


def _past_seed(top: Section, task: str) -> int:
    """Seed of the last row of the experiment `task`, else of the last run, else a fresh one."""
    past = Store(top.location("results"))
    own = [row.asked.seed for row in past.read(RowRecord) if row.asked.task == task]
    return (own or [run.seed for run in past.read(RunRecord)] or [seed_of(top)])[-1]


def _model(shape: Section, device: DeviceChoice, weights: str, root: Path) -> tuple[Model | None, int | None]:
    """The model, None if the weights bring it, and the given positions."""
    positions: int | None = shape.value("positions", int | None)
    if shape.text("name") != "auto":
        return _read_model(shape), positions
    shape.only({"name", "positions"})
    if weights != SYNTHETIC:
        return None, positions
    model = model_named(AUTO_MODEL[device.name], root)
    return (replace(model, positions=positions) if positions else model), positions


def _read_model(shape: Section) -> Model:
    """The model of a section; traits that it does not name are those of `Model`."""
    return shape.read(Model, but={*FORMATS, *({*TRAITS} - shape.values.keys())})


def _timing(section: Section) -> Timing | None:
    if section.text("name") == "none":
        for key in sorted(section.values.keys() - {"name"}):
            raise LabError(f"timing.{key}= has no effect with timing=none", "leave timing=none out")
        return None
    timing = section.read(Timing)
    if timing.max_rounds < timing.rounds:
        raise LabError(
            f"timing.max_rounds={timing.max_rounds} is below timing.rounds={timing.rounds}",
            "raise timing.max_rounds, or lower timing.rounds",
        )
    return timing


def _formats(top: Section) -> tuple[str | None, str, str]:
    """Formats as `Format` spells them: of the layers' matrices, None as they are stored, of LM head and KV cache."""
    form = str(read_format(top.text("format"))) if top.given("format") else None
    return form, str(read_format(top.text("head_format"))), str(read_kv_format(top.text("kv_format")))


def _weights(top: Section) -> str:
    """The `spec` of `common.model.weights.load`; the path of an existing file or folder is made absolute."""
    spec = top.text("weights")
    path = str(absolute(spec))
    return path if spec != SYNTHETIC and os.path.exists(path) else spec

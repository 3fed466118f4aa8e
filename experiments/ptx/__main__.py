"""Run a kernel of a CUDA or PTX file: `python -m experiments.ptx --help`."""

import json
import random
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.run_config import SEEDS, Seed
from common.config.section import Natural, Section
from common.config.texts import quoted
from common.display.table import Table, terminal
from common.errors import LabError, known
from experiments.ptx.arguments import Argument, arguments, packed, text_in

SHOWN = 4  # values of an array
ARCH = "sm_90"


@dataclass(frozen=True)
class Settings:
    """The keys of conf/ptx.yaml, which explains them, but `arguments`."""

    file: Path
    launch: Path | None
    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: Natural
    arch: str | None
    seed: Seed | None
    races: bool
    timeout_s: float
    out: Path | None
    cache: Path
    cache_limit_gb: float
    json: bool
    debug: bool


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    given = words(sys.argv[1:] if argv is None else argv)
    return run_task(partial(run, {word.partition("=")[0] for word in given}), "ptx", given)


def words(argv: Sequence[str]) -> list[str]:
    """The command line as Hydra reads it: of two words that stand alone the first is `file`, the second `launch`."""
    keys, made = ["file", "launch"], list[str]()
    for before, word in zip(["", *argv], argv, strict=False):
        alone = "=" not in word and not word.startswith("-") and not before.startswith("-")
        made.append(f"{keys.pop(0)}={quoted(word)}" if alone and keys else word)
    return made


def run(given: Collection[str], cfg: DictConfig) -> int:
    """Launch the kernel of `cfg` and print how it ended. given: keys of the command line. Raises LabError."""
    from common.devices.ptx.library import library  # these import torch
    from common.devices.ptx.program import Machine, PtxProgram
    from common.devices.ptx.text import parse
    from experiments.ptx.launch import Launch, kernel_of, name_of, text_of

    section = _with_yaml(Section.from_config(cfg), given)
    settings = Settings(**section.fields(Settings))
    seed = random.randrange(SEEDS) if settings.seed is None else settings.seed
    passed = arguments(section.values["arguments"], seed, (settings.launch or settings.file).parent)
    text, name = text_of(settings.file, settings.arch or ARCH, settings.cache), name_of(settings.file)
    kernel = kernel_of(parse(text, name), settings.kernel, settings.file)
    parameters = packed(passed, kernel)
    sizes = _sizes("grid", settings.grid), _sizes("block", settings.block)
    launch = Launch(*sizes, settings.shared, seed, settings.races, settings.timeout_s)
    program = PtxProgram(Machine(library(settings.cache)), text, name)
    ended = launch.run(program.kernel(kernel.name), parameters, passed)
    written = {one.name: _summary(one) for one in ended.written}
    if settings.out:
        _save(ended.written, settings.out)
    if settings.json:
        print(
            json.dumps(
                {"kernel": kernel.name, "seed": seed, "end": ended.end, "report": ended.report, "arrays": written}
            )
        )
        return int(not ended.finished)
    print(f"{kernel.name}, {launch}, {program.module.target}, seed {seed}: {ended.end}")
    print(ended.report, end="\n" if ended.report else "")
    if written:
        terminal(Table.of([{"array": array, **shown} for array, shown in written.items()], names=1))
    return int(not ended.finished)


def _with_yaml(section: Section, given: Collection[str]) -> Section:
    """The section with the keys of the yaml `launch`; the command line goes first."""
    keys = set(section.values) - {"launch", "file", "debug"}
    if not section.given("file"):
        raise LabError("no file is given", "python -m experiments.ptx FILE.cu LAUNCH.yaml; see --help")
    if not section.given("launch"):
        return section
    path = section.location("launch")
    try:
        found = yaml.safe_load(text_in(path, "give a yaml with keys such as grid and arguments"))
    except yaml.YAMLError as error:
        raise LabError(f"{path.name} is no yaml: {error}", "write key: value, and a list as [1, 2]") from None
    if not isinstance(found, dict):
        raise LabError(f"{path.name} is no mapping", "write lines such as grid: 4")
    for key in found:
        known(f"key in {path.name}", key, keys)
    return Section(
        {**section.values, **{key: found[key] for key in found if key not in given}}, origins=section.origins
    )


def _sizes(key: str, sizes: tuple[int, ...]) -> tuple[int, int, int]:
    if len(sizes) > 3:
        raise LabError(f"{key}={list(sizes)} has {len(sizes)} dimensions", "give at most three")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _summary(one: Argument) -> dict[str, Any]:
    """Figures of an array: NaN is in none but its own count."""
    values = one.numbers.ravel()
    numbers = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    least, most = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)
    return {
        "type": one.type,
        "shape": " x ".join(map(str, one.bits.shape)),
        "min": least,
        "max": most,
        "NaN": values.size - numbers.size,
        "first values": ", ".join(f"{value:.6g}" for value in values[:SHOWN].tolist()),
    }


def _save(written: Sequence[Argument], folder: Path) -> None:
    """Each array as NAME.npy, in bf16 as fp32."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in written:
            np.save(folder / f"{one.name}.npy", one.numbers)
    except OSError as error:
        raise LabError(f"out={folder} cannot be written: {error.strerror}", "give out=FOLDER") from error


if __name__ == "__main__":
    raise SystemExit(main())

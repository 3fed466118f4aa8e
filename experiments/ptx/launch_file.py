"""The yaml of a launch with the command line over it, and the rows that its key `sweep` asks for."""

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from common.config.run_config import SEEDS, Seed
from common.config.section import Natural, Range, Section
from common.errors import LabError, known

ROW_KEYS = ("kernel", "grid", "block", "shared", "define", "std", "arch", "seed")  # that a row of a sweep may give
MOST_ROWS = 1000
MACRO = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Settings:
    """The keys of conf/ptx.yaml, which explains them. Those that describe data are read by arguments.py."""

    file: Path
    launch: Path | None
    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: Natural
    arguments: Any
    arrays: Any
    sweep: Any
    include: tuple[str, ...]
    define: Any
    std: Annotated[int, Range(1)] | None
    arch: str | None
    seed: Seed
    races: bool
    timeout_s: float
    out: Path | None
    cache: Path
    cache_limit_gb: float
    json: bool
    debug: bool

    @property
    def folder(self) -> Path:
        """Folder that files and headers are relative to."""
        return (self.launch or self.file).parent


@dataclass(frozen=True)
class Row:
    """One launch. label: the values of a row of a sweep, as the table shows them."""

    label: Mapping[str, str]
    settings: Settings


def rows(cfg: DictConfig, given: Collection[str]) -> list[Row]:
    """One row without a sweep; a row for each combination of a mapping of lists, or each of a list. Raises LabError."""
    section = Section.from_config(cfg)
    if not section.given("file"):
        raise LabError("no file is given", "python -m experiments.ptx FILE.cu LAUNCH.yaml; see --help")
    values = _with_yaml(section, given) if section.given("launch") else section.values
    if values["seed"] is None:
        values["seed"] = random.randrange(SEEDS)
    sweep = values["sweep"]
    chosen = [{}] if sweep is None else _combinations(sweep) if isinstance(sweep, dict) else sweep
    if not isinstance(chosen, list) or not 0 < len(chosen) <= MOST_ROWS:
        remedy = "give sweep: {block: [64, [32, 4]]} or sweep: [{block: 64}, {block: [32, 4]}], at least one row"
        raise LabError(f"sweep is no mapping of lists, and no list of 1 to {MOST_ROWS} rows", remedy)
    return [_row(values, each, section.origins) for each in chosen]


def _with_yaml(section: Section, given: Collection[str]) -> dict[str, Any]:
    """The values with those of the yaml `launch`; the command line goes first, for macros each by itself."""
    path, values = section.location("launch"), section.values
    try:
        found = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        why = shorten(str(error), 300, placeholder=" ...")  # a list within itself has an endless path
        raise LabError(
            f"{path.name} cannot be read: {why}", "write key: value, each key once, a list as [1,2]"
        ) from None
    if not isinstance(found, dict):
        raise LabError(f"{path.name} is no mapping", "write lines such as grid: 4")
    for key in found:
        known(f"key in {path.name}", key, set(values) - {"launch", "file", "debug"})
    define = {"define": _merged(found.get("define"), values["define"])}
    return {**values, **{str(key): each for key, each in found.items() if key not in given}, **define}


def _combinations(sweep: Mapping[Any, Any]) -> list[dict[Any, Any]] | None:
    """Each combination of `{block: [64, [32, 4]], define: {TILE: [8, 16]}}`; None if a key has no list."""
    keys, define = [key for key in sweep if key != "define"], sweep.get("define", {})
    axes = [*(sweep[key] for key in keys), *(define.values() if isinstance(define, dict) else [None])]
    if not axes or not all(isinstance(each, list) for each in axes):
        return None
    return [
        {**dict(zip(keys, values, strict=False)), "define": dict(zip(define, values[len(keys) :], strict=True))}
        for values in islice(product(*axes), MOST_ROWS + 1)
    ]


def _row(values: Mapping[str, Any], row: Any, origins: dict[str, str]) -> Row:
    if not isinstance(row, dict):
        raise LabError(f"sweep has the row {row}, which is no mapping", "give values: {block: 64, grid: 16}")
    for key in row:
        known("key in sweep", key, ROW_KEYS)
    define = _merged(values["define"], row.get("define"))
    shown = {key: each for key, each in row.items() if key != "define"} | (row.get("define") or {})
    texts = ("x".join(map(str, each)) if isinstance(each, list) else str(each) for each in shown.values())
    label = {key: text or '""' for key, text in zip(shown, texts, strict=True)}
    section = Section({**values, **row, "define": define}, origins=origins)
    return Row(label, Settings(**section.fields(Settings)))


def _merged(*given: Any) -> dict[str, str | None]:
    """Values of `define` as the compiler takes them, the later ones first; None for a macro without a value."""
    found: dict[str, str | None] = {}
    for one in given:
        if one is None:
            continue
        if not isinstance(one, dict) or not all(isinstance(name, str) and MACRO.fullmatch(name) for name in one):
            raise LabError(f"define={one} is no mapping of macros", "give define: {NAME: 1}, or -DNAME=1")
        for name, value in one.items():
            found[name] = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return found

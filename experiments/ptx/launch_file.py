"""The yaml of a launch with the command line over it, and the rows that its key `sweep` asks for."""

import itertools
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf._utils import get_yaml_loader

from common.config.section import Section
from common.errors import LabError, known
from experiments.ptx.arguments import text_in

ROW_KEYS = ("kernel", "grid", "block", "shared", "define", "std", "arch", "seed")  # that a row of a sweep may give
MOST_ROWS = 1000
MACRO = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Row:
    """One launch of a sweep. label: its values as the table shows them; section: all keys, with these values."""

    label: Mapping[str, str]
    section: Section


def with_yaml(section: Section, given: Collection[str]) -> Section:
    """The section with the keys of the yaml `launch`; the command line goes first, for macros each by itself."""
    keys = set(section.values) - {"launch", "file", "debug"}
    if not section.given("file"):
        raise LabError("no file is given", "python -m experiments.ptx FILE.cu LAUNCH.yaml; see --help")
    if not section.given("launch"):
        return section
    found = read(section.location("launch"))
    for key in found:
        known(f"key in {section.location('launch').name}", key, keys)
    values = {**section.values, **{key: found[key] for key in found if key not in given}}
    if isinstance(found.get("define"), dict) and isinstance(section.values["define"], dict):
        values["define"] = {**found["define"], **section.values["define"]}
    return Section(values, origins=section.origins)


def read(path: Path) -> dict[Any, Any]:
    """The mapping in a yaml, as Hydra reads one: a key that is there twice is a mistake. Raises LabError."""
    try:
        found = yaml.load(text_in(path, "give a yaml with keys such as grid and arguments"), get_yaml_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or (
            "it is nested too deeply" if isinstance(error, RecursionError) else error
        )
        where = f", line {mark.line + 1}" if mark else ""
        raise LabError(
            f"{path.name} is no yaml: {what}{where}", "write key: value, each key once, and a list as [1, 2]"
        ) from None
    if not isinstance(found, dict):
        raise LabError(f"{path.name} is no mapping", "write lines such as grid: 4")
    return found


def rows(section: Section) -> list[Row]:
    """One row without a sweep; a row for each combination of a mapping of lists, or each of a list. Raises LabError."""
    sweep = section.values["sweep"]
    if sweep is None:
        return [Row({}, section)]
    if isinstance(sweep, dict):
        chosen = _combined(sweep)
    elif isinstance(sweep, list) and sweep:
        chosen = [_row(one, f"sweep[{at}]") for at, one in enumerate(sweep)]
    else:
        raise LabError(
            f"sweep={sweep} is no mapping and no list of rows", "give sweep: {block: [64, 128]}, or a list of rows"
        )
    if len(chosen) > MOST_ROWS:
        raise LabError(f"sweep has {len(chosen)} rows", f"give at most {MOST_ROWS}")
    return [_of(section, each) for each in chosen]


def _combined(sweep: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Each combination of `{block: [64, [32, 4]], define: {TILE: [8, 16]}}`."""
    _row(sweep, "sweep")
    axes = {(key, ""): values for key, values in sweep.items() if key != "define"}
    axes |= {("define", name): values for name, values in sweep.get("define", {}).items()}
    for (key, name), values in axes.items():
        if not isinstance(values, list) or not values:
            raise LabError(
                f"sweep.{key}{'.' * bool(name)}{name}={values} is no list",
                "give a list of values for each key: sweep: {block: [64, [32, 4]]} has two, one of two dimensions",
            )
    if math.prod(map(len, axes.values())) > MOST_ROWS:
        raise LabError(f"sweep has {math.prod(map(len, axes.values()))} rows", f"give at most {MOST_ROWS}")
    found = []
    for values in itertools.product(*axes.values()):
        one: dict[str, Any] = {}
        for (key, name), value in zip(axes, values, strict=True):
            if name:
                one.setdefault("define", {})[name] = value
            else:
                one[key] = value
        found.append(one)
    return found


def _row(given: Any, path: str) -> dict[str, Any]:
    if not isinstance(given, dict) or not given:
        raise LabError(f"{path}={given} is no mapping", "give values for a row: {block: 64, grid: 16}")
    for key in given:
        known(f"key in {path}", key, ROW_KEYS)
    if not isinstance(given.get("define", {}), dict):
        raise LabError(f"{path}.define={given['define']} is no mapping", "give define: {NAME: 1}")
    return given


def _of(section: Section, row: Mapping[str, Any]) -> Row:
    shown = {key: value for key, value in row.items() if key != "define"} | dict(row.get("define", {}))
    label = {str(key): "x".join(map(str, v)) if isinstance(v, list) else str(v) or '""' for key, v in shown.items()}
    values = {**section.values, **row}
    if "define" in row:
        before = section.values["define"]
        values["define"] = {**(before if isinstance(before, dict) else {}), **row["define"]}
    return Row(label, Section(values, origins=section.origins))


def macros(given: Any) -> dict[str, str | None]:
    """Values of `define` as the compiler takes them; None for a macro without a value. Raises LabError."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise LabError(f"define={given} is no mapping", "give define: {NAME: 1}, or -DNAME=1")
    found: dict[str, str | None] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not MACRO.fullmatch(name):
            raise LabError(f"define: {name} is no name of a macro", "give a name of C: letters, digits and _")
        if isinstance(value, dict | list) or (isinstance(value, str) and re.search(r"[\n\r\0]", value)):
            raise LabError(f"define.{name}={value} is no value of a macro", "give a number, or a text of one line")
        found[name] = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return found

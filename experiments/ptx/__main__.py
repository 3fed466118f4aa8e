"""Run a kernel of a CUDA or PTX file: `python -m experiments.ptx --help`."""

import json
import os
import random
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.run_config import SEEDS, Seed
from common.config.section import Natural, Range, Section
from common.config.texts import quoted
from common.display.table import Table, terminal
from common.errors import LabError, known
from common.json_values import to_json

if TYPE_CHECKING:
    from experiments.ptx.gpu import Gpu
    from experiments.ptx.launch import Executor
    from experiments.ptx.launch_file import Row
    from experiments.ptx.shown import Result


@dataclass(frozen=True)
class Settings:
    """The keys of conf/ptx.yaml, which explains them, but those that describe data: they are read apart."""

    file: Path
    launch: Path | None
    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: Natural
    include: tuple[str, ...]
    std: Annotated[int, Range(1)] | None
    arch: str | None
    seed: Seed | None
    races: bool
    timeout_s: float
    device: Literal["auto", "cuda", "ptx"]
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
    """The command line as Hydra reads it.

    Of two words that stand alone the first is `file`, the second `launch`; all -DNAME=VALUE are one mapping `define`;
    and `device`, which Hydra would take for the group of conf/device, is a mapping.
    """
    keys, made, macros = ["file", "launch"], list[str](), list[str]()
    for before, word in zip(["", *argv], argv, strict=False):
        key, equals, value = word.partition("=")
        if key.startswith("-D") and key[2:].isidentifier():
            macros.append(f"{key[2:]}:{quoted(value) if equals else 'null'}")
        elif key == "device":
            made.append(f"device={{name:{quoted(value)}}}")
        else:
            alone = not equals and not word.startswith("-") and not before.startswith("-")
            made.append(f"{keys.pop(0)}={quoted(word)}" if alone and keys else word)
    return [*made, *([f"define={{{','.join(macros)}}}"] if macros else [])]


def run(given: Collection[str], cfg: DictConfig) -> int:
    """Launch the kernel of `cfg` and print how it ended. given: keys of the command line. Raises LabError."""
    from experiments.ptx.launch_file import rows, with_yaml

    section = with_yaml(Section.from_config(cfg), given)
    if isinstance(section.values["device"], dict):
        section.values["device"] = section.values["device"].get("name")
    if section.values["seed"] is None:
        section.values["seed"] = random.randrange(SEEDS)
    settings = Settings(**section.fields(Settings))
    chosen = rows(section)
    device = _device(settings)
    if section.values["sweep"] is None:
        result = _launched(device, chosen[0], settings.out, settings.out)
        if settings.json:
            print(json.dumps(to_json(result.json())))
        else:
            _print(result)
        return int(not result.right)
    return _swept(device, chosen, settings)


def _device(settings: Settings) -> "Executor | Gpu":
    """The device of the launch; `auto` is a GPU if there is one. Raises LabError for cuda without a GPU."""
    from common.devices.ptx.library import library  # these import torch
    from common.devices.ptx.program import Machine
    from experiments.ptx.gpu import Gpu
    from experiments.ptx.launch import Executor

    if settings.device != "ptx":
        try:
            return Gpu()
        except LabError:
            if settings.device == "cuda":
                raise
    return Executor(Machine(library(settings.cache)))


def _launched(device: "Executor | Gpu", row: "Row", out: Path | None, fresh: Path | None) -> "Result":
    """Launch one row. out: a folder for its arrays; fresh: the folder of `out=` before the first. Raises LabError."""
    from common.compile.nvrtc import ARCHS
    from common.devices.ptx.text import parse
    from experiments.ptx.arguments import given
    from experiments.ptx.kernels import kernel_of, text_of
    from experiments.ptx.launch import Launch, sizes
    from experiments.ptx.launch_file import macros
    from experiments.ptx.shown import Result, prepare, save

    one = Settings(**row.section.fields(Settings))
    assert one.seed is not None
    folder = (one.launch or one.file).parent
    passed = given(row.section, one.seed, folder)
    if fresh:
        prepare(fresh, passed)
    include = tuple(folder / each for each in one.include)
    arch = device.arch if one.arch is None else known("arch", one.arch, ARCHS)
    text = text_of(one.file, include, macros(row.section.values["define"]), one.std, arch, one.cache)
    ptx = text.ptx()
    module = parse(ptx, text.name)
    kernel = kernel_of(module, one.kernel, one.file)
    passed.check(kernel)
    grid, block, counts = sizes("grid", one.grid), sizes("block", one.block), bool(row.label or out or one.json)
    launch = Launch(grid, block, one.shared, one.seed, one.races, one.timeout_s, counts)
    ended = device.run(text, ptx, kernel, passed, launch)
    title = f"{kernel.name}, {launch}{device.title}, {module.target}, seed {one.seed}"
    result = Result(title, {"kernel": kernel.name, "seed": one.seed}, row.label, passed, ended)
    if out:
        save(result.written, out)
    return result


def _print(result: "Result") -> None:
    seconds = result.outcome.seconds
    print(f"{result.title}: {result.end}" + (f", {1e6 * seconds:.2f} us" if seconds is not None else ""))
    for line in result.lines():
        print(line)
    if arrays := result.arrays():
        terminal(Table.of([{"array": array, **shown} for array, shown in arrays.items()], names=1))


def _swept(device: "Executor | Gpu", rows: Sequence["Row"], settings: Settings) -> int:
    """Launch each row and print one table; one that is refused is not right. Raises LabError if all are refused."""
    table, lines, reports, refused, lost = list[dict[str, Any]](), list[Any](), list[str](), list[LabError](), False
    right = True
    for number, row in enumerate(rows, 1):
        label = f"row {number}, {', '.join(f'{key} {value}' for key, value in row.label.items())}"
        try:
            if lost:
                raise LabError("the row before has ended the GPU's context", "run this row alone")
            out = settings.out / str(number) if settings.out else None
            result = _launched(device, row, out, settings.out if len(refused) == number - 1 else None)
        except LabError as error:
            refused.append(error)
            table.append({**row.label, "end": "refused"})
            lines.append({"row": row.label, "end": "refused", "report": str(error)})
            reports.append(f"{label}: {error}")
        else:
            right, lost = right and result.right, result.outcome.lost
            table.append(result.row())
            lines.append({"row": row.label, **result.json()})
            reports += [f"{label}: {said}" for said in result.lines() if not result.right]
    if len(refused) == len(rows):
        raise refused[0]
    for line in lines if settings.json else []:
        print(json.dumps(to_json(line)))
    if not settings.json:
        print("".join(f"{report}\n" for report in reports), end="")
        empty = {key for row in table for key in row} - {
            key for row in table for key, value in row.items() if value != 0
        }
        terminal(Table.of([{key: row[key] for key in row if key not in empty} for row in table], names=1))
    return int(bool(refused) or not right)


if __name__ == "__main__":
    code = main()
    gpu = sys.modules.get("experiments.ptx.gpu")
    if gpu and gpu.UNENDED:  # at its end Python would free it, and wait for that kernel
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)

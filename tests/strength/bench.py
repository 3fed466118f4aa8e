"""Times of the lab itself on this machine, beside their targets: `python -m tests.strength.bench --help`.

Everything starts with an empty cache of kernels; packed weights are made once before the clock runs.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from common import ROOT
from common.config.cli import run_task
from common.config.resolve import model_named
from common.config.section import Section
from common.errors import LabError
from common.stacks.catalog import variants

TOKENS = 16
STEPS = {"baseline": 5, "persistent": 0.5, "megaqwen": 0.5, "streaming": 1.5}  # seconds at full size, on one core


class Figure(NamedTuple):
    """One measured cost and its promise, in the same unit."""

    what: str
    value: float
    promise: float
    unit: str


def figures(folder: Path, full: bool) -> Iterator[Figure]:
    """Measure one after another, with `full` also at full size; `folder` is empty and takes the caches."""
    yield Figure("python -m experiments device=ptx", _seconds("experiments", folder / "run"), 60, "s")
    yield from _compilation(folder / "compile")
    if full:
        yield from _full_size(folder / "full")


def _seconds(module: str, cache: Path, *argv: str) -> float:
    start = time.perf_counter()
    _lab(module, cache, *argv)
    return time.perf_counter() - start


def _lab(module: str, cache: Path, *argv: str) -> str:
    """Output of one command of the lab; its errors go to this terminal. Raises LabError when it fails."""
    keys = ("device=ptx", f"cache={cache}", f"results={cache}/records.jsonl")
    done = subprocess.run([sys.executable, "-m", module, *keys, *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise LabError(f"python -m {module} ended with exit code {done.returncode}", "see what it said above")
    return done.stdout


def _compilation(cache: Path) -> Iterator[Figure]:
    from common.compile.nvrtc import compile_cubin
    from common.compile.source import build
    from common.devices.ptx.device import PtxDevice
    from common.devices.ptx.library import library

    library(cache)  # g++ compiles the executor once for a computer, not for each kernel
    source = build([variants()["baseline"]], model_named("qwen3_0_6b"))
    start = time.perf_counter()
    PtxDevice(cache).compile(source)
    yield Figure("NVRTC compiles the baseline to PTX, which is decoded", time.perf_counter() - start, 5, "s")
    start = time.perf_counter()
    compile_cubin(source.text, "sm_90", source.name)
    yield Figure("NVRTC compiles it for sm_90", time.perf_counter() - start, 5, "s")


def _full_size(cache: Path) -> Iterator[Figure]:
    def generate(tokens: int, *stack: str) -> float:
        argv = (
            *stack,
            "model=qwen3_0_6b",
            "weights=synthetic",
            "seed=0",
            "prompt_ids=[1]",
            f"max_tokens={tokens}",
            "json=true",
        )
        return json.loads(_lab("experiments.generate", cache, *argv))["seconds"]

    generate(1)
    for name, most in STEPS.items():
        yield Figure(f"one step of {name}, Qwen3-0.6B", generate(TOKENS, f"variant={name}") / TOKENS, most, "s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    yield Figure("memory of these processes at their peak", peak / 1e9, 6, "GB")


def bench(cfg: DictConfig) -> int:
    """Measure, and print the table. Raises LabError for a bad value, and without g++."""
    from rich.console import Console
    from rich.table import Table

    asked = Section.from_config(cfg)
    asked.only({"full", "debug"})
    full = asked.flag("full")
    table = Table(header_style="bold", show_edge=False)
    for head, justify in (("cost", "left"), ("measured", "right"), ("promised", "right")):
        table.add_column(head, justify=justify)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures(Path(folder), full):
            style = "green" if figure.value <= figure.promise else "red"
            value = f"[{style}]{figure.value:.2f} {figure.unit}[/]"
            table.add_row(figure.what, value, f"at most {figure.promise:g} {figure.unit}")
    Console().print(table)
    return 0


main = partial(run_task, bench, "bench")

if __name__ == "__main__":
    raise SystemExit(main())

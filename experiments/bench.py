"""How long the lab itself takes on this machine, beside what it promises: `make bench`.

Everything starts with an empty cache of kernels; packed weights are made once before the clock runs.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from common.catalog import ROOT, variants
from common.config import model_of
from common.section import Section

TOKENS = 4


class Figure(NamedTuple):
    """One measured cost and its promise, in the same unit."""

    what: str
    value: float
    promise: float
    unit: str


def figures(folder: Path) -> Iterator[Figure]:
    """Measure one after another; `folder` is empty and takes the caches."""
    yield Figure("python -m experiments device=host", _seconds("experiments", folder / "run"), 60, "s")
    yield from _compilation(folder / "compile")
    yield from _full_size(folder / "full")


def _seconds(module: str, cache: Path, *argv: str) -> float:
    start = time.perf_counter()
    _lab(module, cache, *argv)
    return time.perf_counter() - start


def _lab(module: str, cache: Path, *argv: str) -> str:
    """What one command of the lab prints; its errors go to this terminal."""
    command = [sys.executable, "-m", module, "device=host", f"cache={cache}", f"results={cache}/records.jsonl", *argv]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def _compilation(cache: Path) -> Iterator[Figure]:
    from omegaconf import OmegaConf

    from common.devices.host import HostDevice
    from common.nvrtc import compile_cubin
    from common.source import build

    shape = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "model" / "qwen3_0_6b.yaml"))
    source = build([variants()["baseline"]], model_of(Section(shape, "model.")))
    start = time.perf_counter()
    HostDevice(cache).compile(source)
    yield Figure("g++ compiles the baseline", time.perf_counter() - start, 5, "s")
    start = time.perf_counter()
    compile_cubin(source.text, "sm_90", source.name)
    yield Figure("NVRTC compiles it for sm_90", time.perf_counter() - start, 5, "s")


def _full_size(cache: Path) -> Iterator[Figure]:
    def generate(tokens: int) -> float:
        argv = (
            "model=qwen3_0_6b",
            "weights=synthetic",
            "seed=0",
            "prompt_ids=[1]",
            f"max_tokens={tokens}",
            "json=true",
        )
        return json.loads(_lab("experiments.generate", cache, *argv))["seconds"]

    generate(1)
    yield Figure("one step of Qwen3-0.6B", generate(TOKENS) / TOKENS, 5, "s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    yield Figure("memory of that process at its peak", peak / 1e9, 6, "GB")


def main() -> None:
    """Print the table."""
    table = Table(header_style="bold", show_edge=False)
    for head, justify in (("cost", "left"), ("measured", "right"), ("promised", "right")):
        table.add_column(head, justify=justify)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures(Path(folder)):
            style = "green" if figure.value <= figure.promise else "red"
            value = f"[{style}]{figure.value:.1f} {figure.unit}[/]"
            table.add_row(figure.what, value, f"at most {figure.promise:g} {figure.unit}")
    Console().print(table)


if __name__ == "__main__":
    main()

"""The machine as a shared library: compiled by g++ once for a processor, its units at the same time on all cores."""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common.devices.host.compiler import Compiler, cpu, sha

SOURCES = Path(__file__).resolve().parent / "machine"
FLAGS = (
    "-std=c++20",
    "-O3",
    "-g1",
    "-fPIC",
    "-march=native",
    "-fno-strict-aliasing",  # a register has the type that an instruction gives it
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
)


def library(cache: Path) -> Path:
    """The path of the compiled library. Raises LabError without g++, and CompileError if it fails."""
    compiler = Compiler(cache)
    headers = [text for file in sorted(SOURCES.glob("*.hpp")) for text in (file.name, file.read_text())]
    of_all = sha(*headers, *FLAGS, compiler.version(), cpu())

    def compiled(unit: Path) -> Path:
        target = compiler.cache / f"{sha(of_all, unit.name, unit.read_text())}.o"
        return compiler.compiled(target, [*FLAGS, "-c", str(unit)])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
    return compiler.link(objects, ".so")

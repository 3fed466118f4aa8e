"""The machine as a shared library: compiled by g++ once for a processor, its units at the same time on all cores."""

import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common.cache.files import intact
from common.devices.host.compiler import Compiler, cpu, sha, temporary

SOURCES = Path(__file__).resolve().parent / "machine"
FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-march=native",
    "-fno-strict-aliasing",  # a register has the type that an instruction gives it
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
)


def library(cache: Path, note: Callable[[str], None] = lambda text: None) -> Path:
    """The path of the compiled library. Raises LabError without g++, and CompileError if it fails.

    note: told once that it is compiled, which takes a while.
    """
    compiler = Compiler(cache)
    headers = sorted(SOURCES.glob("*.hpp"))
    texts = [text for file in headers for text in (file.name, file.read_text())]
    of_all = sha(*texts, *FLAGS, compiler.version(), cpu())
    units = sorted(SOURCES.glob("*.cpp"))
    objects = {unit: compiler.cache / f"{sha(of_all, unit.name, unit.read_text())}.o" for unit in units}
    missing = [unit for unit, target in objects.items() if not intact(target)]
    if missing:
        note("g++ compiles the executor of PTX, once for this computer")
        with temporary() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
            once = Path(folder) / "headers.hpp"  # compiled before the units, which then only load it
            once.write_text("".join(f'#include "{file}"\n' for file in headers))
            compiler.run([*FLAGS, "-x", "c++-header", str(once)])
            flags = [*FLAGS, "-include", str(once), "-c"]
            list(pool.map(lambda unit: compiler.compiled(objects[unit], [*flags, str(unit)]), missing))
    return compiler.link(list(objects.values()), ".so")

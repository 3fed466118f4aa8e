"""The machine as a shared library: compiled by g++ once for each kind of CPU, its units in parallel."""

import os
import platform
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common.cache.files import intact
from common.devices.gxx import Compiler, cpu, sha, temporary

SOURCES = Path(__file__).resolve().parent / "machine"
GROUPS = min(4, os.cpu_count() or 1)  # groups of units, each compiled as one: shared headers take as long as a unit
FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-march=native",
    "-fno-strict-aliasing",  # each instruction reads registers as its own type
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
)


def library(cache: Path, note: Callable[[str], None] = lambda text: None) -> Path:
    """The path of the compiled library. Raises LabError without g++, and MachineError if it fails.

    note: called if the library must be compiled, which takes a while.
    """
    compiler, units = Compiler(cache), sorted(SOURCES.glob("*.cpp"))
    of_all = sha(*_texts(SOURCES.glob("*.hpp")), *FLAGS, compiler.version(), cpu())
    groups = [units[number::GROUPS] for number in range(GROUPS)]
    objects = [compiler.cache / f"{sha(of_all, *_texts(group))}.o" for group in groups]

    def compile_group(group: list[Path], target: Path) -> None:
        if not intact(target):
            with temporary() as folder:
                whole = Path(folder) / "machine.cpp"
                whole.write_text("".join(f'#include "{unit}"\n' for unit in group))
                compiler.compiled(target, [*FLAGS, "-c", str(whole)])

    if not all(map(intact, objects)):
        note("g++ compiles the executor of PTX, once for this computer")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_group, groups, objects))
    return compiler.link(objects)


def _texts(files: Iterable[Path]) -> list[str]:
    """Names and contents of files."""
    return [text for file in sorted(files) for text in (file.name, file.read_text())]

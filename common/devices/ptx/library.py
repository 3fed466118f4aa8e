"""The machine as a shared library: compiled by g++ once for each kind of CPU."""

import platform
from collections.abc import Callable
from pathlib import Path

from common.cache.files import intact
from common.devices.gxx import built, cpu, sha, version

SOURCES = Path(__file__).resolve().parent / "machine"
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
    """The path of the compiled library. Raises MachineError without g++, or if it fails.

    note: called if the library must be compiled, which takes a while.
    """
    texts = [
        text for file in sorted(SOURCES.glob("*.[ch]pp")) for text in (file.name, file.read_text(encoding="utf-8"))
    ]
    target = Path(cache).absolute() / f"{sha(*texts, *FLAGS, version(), cpu())}.so"
    if intact(target):
        return target
    note("g++ compiles the executor of PTX, once for this computer")
    return built(target, sorted(SOURCES.glob("*.cpp")), FLAGS, ["-shared"])

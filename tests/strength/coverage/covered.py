"""Host device that counts, with gcov, how often every line and branch of a kernel's text is executed.

Each program is built into a folder of its own, where g++ leaves gcov's notes. A session that is closed adds its counts
to the data there, by gcov's own library. gcov.py reads both.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.devices.host.compiler import RUNTIME, WARNINGS
from common.devices.host.device import UNITS, HostDevice, HostProgram, HostSession

from common.compile.source import Source
from tests.strength.coverage.gcov import Executed, executed
from tests.strength.coverage.turns import Loop, count_turns

INSTRUMENT = ("-O0", "-fno-exceptions", "--coverage")  # without optimization, lines stay apart
HERE = Path(__file__).resolve().parent  # of turns.hpp
ABOUT = "about.json"


@dataclass(frozen=True)
class Covered:
    """One program and what its sessions have executed.

    stack, knobs   as in its Source
    load_bytes     of one wide load; "" where the text does not say
    loops          of its text
    """

    stack: tuple[str, ...]
    knobs: Mapping[str, Mapping[str, int | str]]
    load_bytes: str
    loops: tuple[Loop, ...]
    executed: Executed


def covered(folder: Path) -> Iterator[Covered]:
    """Every program that a CoveredDevice has compiled below `folder`. Raises LabError without gcov."""
    for file in sorted(folder.glob(f"*/{ABOUT}")):
        about = json.loads(file.read_text())
        loops = tuple(Loop(**loop) for loop in about.pop("loops"))
        yield Covered(tuple(about.pop("stack")), **about, loops=loops, executed=executed(file.parent))


class CoveredDevice(HostDevice):
    """The host device with gcov; `folder` receives a folder for each program that it compiles."""

    name = "host+gcov"

    def __init__(self, cache: Path, folder: Path, *settings: Any, **more: Any) -> None:
        super().__init__(cache, *settings, **more)
        self.workers = 1  # one block at a time: gcov's counters are not atomic
        self._folder = folder.absolute()

    def compile(self, source: Source) -> HostProgram:
        """As HostDevice.compile. Raises LabError for a loop with turns that cannot be counted."""
        text, loops = count_turns(source.text)
        # Of this process: several may compile the same text at the same time.
        folder = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{os.getpid()}"
        binary = self._built(text, folder)
        widths = re.findall(r"\bload_bytes = (\d+);", text)
        about = {
            "stack": source.stack,
            "knobs": source.knobs,
            "load_bytes": widths[-1] if widths else "",  # of the outermost variant that sets it
            "loops": [asdict(loop) for loop in loops],
        }
        (folder / ABOUT).write_text(json.dumps(about))
        return HostProgram(source, binary)

    def _built(self, text: str, folder: Path) -> Path:
        """The library in `folder`, not in the cache: it names the file of its data by its full path."""
        binary, build = folder / "kernel.so", self._compiler
        if not binary.exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "kernel.cpp").write_text(text)
            options = build.options(*WARNINGS, *INSTRUMENT, *self._flags)
            build.run([*options, f"-I{RUNTIME}", f"-I{HERE}", "-c", "kernel.cpp", "-o", "kernel.o"], str(folder))
            shared = ["-shared", "-pthread", "--coverage", "kernel.o", str(build.runtime(UNITS))]
            build.run([*shared, "-o", binary.name], str(folder))
        return binary

    def _open(self, *arguments: Any) -> "CoveredSession":
        return CoveredSession(*arguments)


class CoveredSession(HostSession):
    """One kernel with counted lines. A launch that times out is not counted."""

    def close(self) -> None:
        if not self._timed_out:
            self._library.lab_dump_counters()
        super().close()

"""Host device that counts, with gcov, how often every line and branch of a kernel's text is executed.

Each program is built into a folder of its own, where g++ leaves gcov's notes. A session that is closed adds its counts
to the data there, by gcov's own library. common/devices/host/gcov.py reads both.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.compile.source import Source
from common.devices.host.device import UNITS, GuardedBuffer, HostDevice, HostProgram, HostSession
from common.devices.host.gcov import Executed, executed
from common.devices.host.turns import Loop, count_turns

# Without optimization, lines stay apart.
INSTRUMENT = ("-O0", "-fno-exceptions")
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
        self._folder = folder.absolute()

    def compile(self, source: Source) -> HostProgram:
        """As HostDevice.compile. Raises LabError for a loop whose turns cannot be counted."""
        text, loops = count_turns(source.text)
        # Of this process: several may compile the same text at the same time.
        folder = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{os.getpid()}"
        runtime = [self._compiler.runtime((*UNITS, "counters.cpp"))]
        binary = self._compiler.covered(text, folder, runtime, *INSTRUMENT, *self._flags)
        widths = re.findall(r"\bload_bytes = (\d+);", text)
        about = {
            "stack": source.stack,
            "knobs": source.knobs,
            "load_bytes": widths[-1] if widths else "",  # of the outermost variant that sets it
            "loops": [asdict(loop) for loop in loops],
        }
        (folder / ABOUT).write_text(json.dumps(about))
        return HostProgram(source, binary)

    def _open(
        self, program: HostProgram, weights: GuardedBuffer, blocks: int, workers: int, *settings: Any
    ) -> "CoveredSession":
        """One block at a time, `workers` is ignored: gcov's counters are not atomic."""
        return CoveredSession(program, weights, blocks, 1, *settings)


class CoveredSession(HostSession):
    """One kernel whose executed lines are counted. What a launch that timed out executed is not."""

    def close(self) -> None:
        if not self._timed_out:
            self._library.lab_dump_counters()
        super().close()

"""Host session whose calls of `run` are child processes on shared buffers (runtime/runner.cpp).

For kernels that cannot be loaded into this Python: a sanitizer's, or those of another processor.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from common.devices.host.device import UNITS, HostSession
from common.devices.host.memory import GUARD_BYTES, SharedBuffer
from common.errors import Crashed
from common.errors.machine import Vanished, of_system

CHILD_UNITS = (*UNITS, "runner.cpp")  # source files of the runtime in such a program
GRACE = 60.0  # seconds for a child process to start and to report, added to the limits of its launches


class ChildSession(HostSession):
    """HostSession whose launches run in a child process. Its buffers are SharedBuffers."""

    def close(self) -> None:
        self._buffers = {}

    def _load(self, binary: Path) -> None:
        self._binary = binary

    def _prefix(self) -> tuple[str, ...]:
        """Words of the command before the program."""
        return ()

    def _environment(self) -> dict[str, str]:
        """Variables that are added to the environment."""
        return {}

    def _launch_all(self, these: Sequence[tuple[int, int]]) -> None:
        seeds = range(self._seed, self._seed + len(these))
        self._seed += len(these)
        lines = "".join(f"{kernel} {last} {seed}\n" for (kernel, last), seed in zip(these, seeds, strict=True))
        shared = [cast(SharedBuffer, buffer) for buffer in (*self._buffers.values(), self._counts)]
        named = [f"{buffer.descriptor}:{buffer.start}:{buffer.bytes}" for buffer in shared]
        settings = (GUARD_BYTES, self.blocks, self._workers, self._timeout)
        try:
            done = subprocess.run(
                [*self._prefix(), str(self._binary), *map(str, (*named, *settings))],
                input=lines,
                capture_output=True,
                text=True,
                errors="replace",
                pass_fds=[buffer.descriptor for buffer in shared],
                env=os.environ | self._environment(),
                timeout=len(these) * self._timeout + GRACE,
            )
        except subprocess.TimeoutExpired:
            raise Crashed("the kernel's process does not end", "raise device.timeout_s") from None
        except OSError as error:
            raise of_system(error, "the kernel's process cannot be started") from error
        if not self._binary.exists():  # with words before it, they are what is started
            raise Vanished(f"the kernel {self._binary} is gone", "give the command again")
        self._read(done)

    def _read(self, done: subprocess.CompletedProcess[str]) -> None:
        """Raise Hung or Crashed from the child's output and exit status; return if it finished."""
        self._raise_for_status(done.returncode, done.stdout)

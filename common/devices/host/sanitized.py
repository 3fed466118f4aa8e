"""Host device with a sanitizer: each call of `run` is a process of its own, whose output says what is wrong and where.

A library with ThreadSanitizer or AddressSanitizer cannot be loaded into a running Python. So the kernel is started as a
child process on shared buffers. ThreadSanitizer reports each pair of source lines whose accesses no barrier orders; it
compares the order that barriers define, not the times of the accesses, so a missing barrier is found under nearly every
schedule. AddressSanitizer finds what lies outside a variable on the stack or beside a buffer,
UndefinedBehaviorSanitizer an index outside its array, a shift that is too far, or a signed overflow.
"""

import platform
import re
import shutil
import subprocess
from functools import cache
from typing import Any

import torch

from common.compile.source import Source
from common.devices.cpu import FAULTED, CpuSession
from common.devices.guarded import SharedBuffer
from common.devices.host.device import CHILD_UNITS, ChildSession, HostDevice, HostProgram
from common.devices.host.sanitizers import SANITIZERS, Sanitizer, data_races, fault, finding
from common.errors import CompileError, Crashed, LabError, Race, Refused

BLOCKS = 5  # default grid of ThreadSanitizer: the time of a step grows with the square of the number of threads
MAX_THREADS = 7000  # of a grid; the ThreadSanitizer of gcc aborts at 8128


class SanitizedDevice(HostDevice):
    """The host device with the sanitizer of that name: `run` of its sessions raises Race, or Crashed for the others."""

    buffer = SharedBuffer

    def __init__(self, *arguments: Any, sanitizer: str = "thread", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.workers = 1  # one block at a time: `Grid::dispatch` in runtime/grid.cpp says why
        self._sanitizer = SANITIZERS[sanitizer]
        self.name = f"host+{self._sanitizer.suffix}"

    def compile(self, source: Source) -> HostProgram:
        """As HostDevice.compile. Raises LabError if the library of the sanitizer is not installed."""
        build, sanitizer = self._compiler, self._sanitizer
        kernel = build.kernel(source.text, *sanitizer.instrument, sanitizer.annotate, *self._flags)
        objects = [kernel, build.runtime(CHILD_UNITS, sanitizer.annotate)]
        try:
            return HostProgram(source, build.link(objects, ".exe", "-pie", *sanitizer.instrument))
        except CompileError as error:
            raise LabError(
                f"g++ cannot link with {sanitizer.title}",
                f"install its library (Debian: apt install {sanitizer.library}), or leave out sanitize=",
            ) from error

    def session(
        self,
        program: HostProgram,
        weights: torch.Tensor,
        blocks: int | None = None,
        beside: CpuSession | None = None,
    ) -> CpuSession:
        """As HostDevice.session. Raises Refused for more threads than ThreadSanitizer can follow."""
        thread = self._sanitizer.suffix == "tsan"
        if blocks is None and thread:
            blocks = BLOCKS * program.source.blocks_per_sm
        session = super().session(program, weights, blocks, beside)
        if thread and session.blocks * program.source.launched_threads > MAX_THREADS:
            raise Refused(
                f"ThreadSanitizer cannot follow {session.blocks} blocks of {program.source.launched_threads} threads",
                f"choose a grid of at most {MAX_THREADS} threads with blocks= and threads=",
            )
        return session

    def _open(self, *arguments: Any) -> "SanitizedSession":
        session = SanitizedSession(*arguments)
        session.sanitizer = self._sanitizer
        return session


class SanitizedSession(ChildSession):
    """One kernel with `sanitizer`. After a finding the buffers hold what the kernel wrote."""

    sanitizer: Sanitizer

    def _environment(self) -> dict[str, str]:
        return {self.sanitizer.variable: self.sanitizer.options}

    def _prefix(self) -> tuple[str, ...]:
        return _fixed_addresses()

    def _read(self, done: subprocess.CompletedProcess[str]) -> None:
        """Raise Race, Hung or Crashed from the child's output and exit status; return if it finished."""
        if found := finding(done.stderr):
            raise Crashed(f"{self.sanitizer.title}: {found}", "correct that line")
        if races := data_races(done.stderr):
            more = f", and {len(races) - 1} more" if len(races) > 1 else ""
            raise Race(
                f"data race: {races[0]}{more}",
                "put a barrier, or a release and an acquire, between the two accesses",
                "\n".join([*races, done.stdout]).strip(),
            )
        if fatal := re.search(r"FATAL: ThreadSanitizer: (.*)", done.stderr):
            raise LabError(
                f"ThreadSanitizer cannot start here: {fatal[1]}",
                "allow `setarch -R` here, or set vm.mmap_rnd_bits=28, or leave out sanitize=",
            )
        if not 0 <= done.returncode <= FAULTED:
            why = fault(done.stderr) or f"exit status {done.returncode} {done.stderr.strip()[-200:]}"
            raise Crashed(f"the kernel's process ended: {why}", "look for an index far outside a buffer")
        super()._read(done)


@cache
def _fixed_addresses() -> tuple[str, ...]:
    """A command prefix that disables address randomization: ThreadSanitizer supports only some address ranges."""
    prefix = ("setarch", platform.machine(), "-R")
    works = shutil.which(prefix[0]) and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if works else ()

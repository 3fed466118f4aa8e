"""Host device under ThreadSanitizer: reports each pair of source lines whose accesses no barrier orders.

A library with ThreadSanitizer cannot be loaded into a running Python. So each call of `run` starts the kernel as a
child process (runtime/runner.cpp) on shared buffers and reads ThreadSanitizer's output. The detection compares the
order that barriers define, not the times of the accesses: a missing barrier is found under nearly every schedule.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch

from common.compile.source import Source
from common.devices.host import FAULTED, UNITS, HostDevice, HostProgram, HostSession, LaunchArguments
from common.devices.host_memory import GUARD_BYTES, GuardedBuffer, SharedBuffer
from common.devices.tsan_report import data_races, fault
from common.errors import CompileError, Crashed, LabError, Race, Refused
from common.model.layout import Layout

INSTRUMENT = "-fsanitize=thread"
ANNOTATE = "-DLAB_TSAN"  # for the runtime, which is annotated and not instrumented: runtime/sanitizer.hpp
OPTIONS = "exitcode=66 report_thread_leaks=0 detect_deadlocks=0 print_summary=0"
BLOCKS = 5  # default grid: the time of a step grows with the square of the number of threads
MAX_THREADS = 7000  # of a grid; the ThreadSanitizer of gcc aborts at 8128
GRACE = 60.0  # seconds for a child process to start and to report, added to the limits of its launches


class SanitizedDevice(HostDevice):
    """The host device with ThreadSanitizer: `run` of its sessions raises Race."""

    name = "host+tsan"
    buffer = SharedBuffer

    def compile(self, source: Source) -> HostProgram:
        """As HostDevice.compile. Raises LabError if the library of ThreadSanitizer is not installed."""
        build = self._compiler
        runtime = [build.runtime(unit, ANNOTATE) for unit in (*UNITS, "runner.cpp")]
        objects = [build.kernel(source.text, INSTRUMENT, ANNOTATE, *self._flags), *runtime]
        try:
            return HostProgram(source, build.link(objects, ".exe", "-pie", INSTRUMENT))
        except CompileError as error:
            raise LabError(
                "g++ cannot link with ThreadSanitizer",
                "install its library (Debian: apt install libtsan2), or leave out sanitize=",
            ) from error

    def session(
        self, program: HostProgram, layout: Layout, weights: torch.Tensor, blocks: int | None = None
    ) -> HostSession:
        """As HostDevice.session. Raises Refused for more threads than ThreadSanitizer can follow."""
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        session = super().session(program, layout, weights, blocks)
        if session.blocks * program.source.threads > MAX_THREADS:
            raise Refused(
                f"ThreadSanitizer cannot follow {session.blocks} blocks of {program.source.threads} threads",
                f"choose a grid of at most {MAX_THREADS} threads with blocks= and threads=",
            )
        return session

    def _open(
        self, program: HostProgram, layout: Layout, weights: GuardedBuffer, blocks: int, workers: int, *settings: Any
    ) -> "SanitizedSession":
        """One block at a time, `workers` is ignored: `Grid::dispatch` in runtime/grid.cpp says why."""
        return SanitizedSession(program, layout, weights, blocks, 1, *settings)


class SanitizedSession(HostSession):
    """One kernel under ThreadSanitizer. After a Race the buffers hold what the kernel wrote."""

    def close(self) -> None:
        self._buffers = {}

    def _load(self, binary: Path) -> None:
        self._binary = binary

    def _launch_all(self, launch_arguments: Sequence[LaunchArguments]) -> None:
        seeds = range(self._seed, self._seed + len(launch_arguments))
        self._seed += len(launch_arguments)
        lines = "".join(
            f"{steps} {stage} {layer} {seed}\n"
            for (steps, stage, layer), seed in zip(launch_arguments, seeds, strict=True)
        )
        shared = [cast(SharedBuffer, buffer) for buffer in (*self._buffers.values(), self._counts)]
        named = [f"{buffer.descriptor}:{buffer.start}:{buffer.bytes}" for buffer in shared]
        settings = (GUARD_BYTES, self.blocks, self._workers, self._timeout)
        try:
            done = subprocess.run(
                [*_fixed_addresses(), str(self._binary), *map(str, (*named, *settings))],
                input=lines,
                capture_output=True,
                text=True,
                errors="replace",
                pass_fds=[buffer.descriptor for buffer in shared],
                env=os.environ | {"TSAN_OPTIONS": OPTIONS},
                timeout=len(launch_arguments) * self._timeout + GRACE,
            )
        except subprocess.TimeoutExpired:
            raise Crashed("the kernel's process does not end", "raise device.timeout_s") from None
        self._read(done)

    def _read(self, done: subprocess.CompletedProcess[str]) -> None:
        """Raise Race, Hung or Crashed from the child's output and exit status; return if it finished."""
        if races := data_races(done.stderr):
            more = f", and {len(races) - 1} more" if len(races) > 1 else ""
            raise Race(
                f"data race: {races[0]}{more}",
                "put a barrier, or a release and an acquire, between the two accesses",
                "\n".join([*map(str, races), done.stdout]).strip(),
            )
        if fatal := re.search(r"FATAL: ThreadSanitizer: (.*)", done.stderr):
            raise LabError(
                f"ThreadSanitizer cannot start here: {fatal[1]}",
                "allow `setarch -R` here, or set vm.mmap_rnd_bits=28, or leave out sanitize=",
            )
        if not 0 <= done.returncode <= FAULTED:
            why = fault(done.stderr) or f"exit status {done.returncode} {done.stderr.strip()[-200:]}"
            raise Crashed(f"the kernel's process ended: {why}", "look for an index far outside a buffer")
        self._raise_for_status(done.returncode, done.stdout)


@cache
def _fixed_addresses() -> tuple[str, ...]:
    """A command prefix that disables address randomization: ThreadSanitizer supports only some address ranges."""
    prefix = ("setarch", platform.machine(), "-R")
    works = shutil.which(prefix[0]) and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if works else ()

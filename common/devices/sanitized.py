"""The host device under ThreadSanitizer: every pair of accesses that no barrier orders, named by source line.

A library with ThreadSanitizer cannot be loaded into a running Python, so each call of `run` starts the kernel as a
program (common/host/runner.cpp) on buffers that both map, and reads what ThreadSanitizer printed. Whether two accesses
are ordered hardly depends on how the threads happened to run: a missing barrier is seen under every schedule.
"""

import mmap
import os
import platform
import re
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from common.devices.host import CORRUPTED, GUARD, UNITS, Guarded, HostDevice, HostProgram, HostSession, Order
from common.devices.races import fault, races
from common.errors import CompileError, Crashed, LabError, Race, Refused
from common.layout import Layout
from common.source import Source

INSTRUMENT = "-fsanitize=thread"
TOLD = "-DLAB_TSAN"  # the runtime is not instrumented; it says what its barriers order
OPTIONS = "exitcode=66 report_thread_leaks=0 detect_deadlocks=0 print_summary=0"
BLOCKS = 5  # default grid: a step takes time with the square of its threads
MAX_THREADS = 7000  # lanes that ThreadSanitizer is asked to follow; gcc's gives up at 8128
GRACE = 60.0  # seconds for a child to start and to report, beyond the time its launches may take


class Shared(Guarded):
    """A guarded tensor in memory that a child process can map: `descriptor` names it."""

    def _allocate(self, words: int) -> torch.Tensor:
        self.descriptor = os.memfd_create("buffer")
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, 2 * words)
        return torch.frombuffer(mmap.mmap(self.descriptor, 2 * words), dtype=torch.int16)


class SanitizedDevice(HostDevice):
    """The host device with ThreadSanitizer; `run` raises Race. Raises LabError where ThreadSanitizer is missing."""

    name = "host+tsan"
    buffer = Shared

    def compile(self, source: Source) -> HostProgram:
        """Compiled once per text, compiler and CPU. Raises CompileError."""
        build = self._compiler
        runtime = [build.runtime(unit, TOLD) for unit in (*UNITS, "runner.cpp")]
        objects = [build.kernel(source.text, INSTRUMENT, TOLD, *self._flags), *runtime]
        try:
            return HostProgram(source, build.link(objects, ".exe", INSTRUMENT))
        except CompileError as error:
            raise LabError(
                "g++ cannot link with ThreadSanitizer",
                "install its library (Debian: apt install libtsan2), or leave out sanitize=",
            ) from error

    def session(
        self, program: HostProgram, layout: Layout, weights: torch.Tensor, blocks: int | None = None
    ) -> "SanitizedSession":
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        session = super().session(program, layout, weights, blocks)
        if session.blocks * program.source.threads > MAX_THREADS:
            raise Refused(
                f"ThreadSanitizer cannot follow {session.blocks} blocks of {program.source.threads} threads",
                f"choose a grid of at most {MAX_THREADS} threads with blocks= and threads=",
            )
        return session

    def _open(
        self, program: HostProgram, layout: Layout, weights: Guarded, blocks: int, workers: int, *settings: Any
    ) -> "SanitizedSession":
        """One block at a time, whatever `workers` says: see `Grid::dispatch` in common/host/grid.cpp."""
        return SanitizedSession(program, layout, weights, blocks, 1, *settings)


class SanitizedSession(HostSession):
    """One kernel that ThreadSanitizer watches. After a Race the buffers hold what the kernel left."""

    def close(self) -> None:
        self._buffers = {}

    def _load(self, binary: Path) -> None:
        self._binary = binary

    def _launch(self, orders: Sequence[Order]) -> None:
        seeds = range(self._seed, self._seed + len(orders))
        self._seed += len(orders)
        lines = "".join(
            f"{steps} {stage} {layer} {seed}\n" for (steps, stage, layer), seed in zip(orders, seeds, strict=True)
        )
        shared = [buffer.descriptor for buffer in (*self._buffers.values(), self._counts)]
        settings = (GUARD, self.blocks, self._workers, self._timeout)
        try:
            done = subprocess.run(
                [*_fixed_addresses(), str(self._binary), *map(str, (*shared, *settings))],
                input=lines,
                capture_output=True,
                text=True,
                errors="replace",
                pass_fds=shared,
                env=os.environ | {"TSAN_OPTIONS": OPTIONS},
                timeout=len(orders) * self._timeout + GRACE,
            )
        except subprocess.TimeoutExpired:
            raise Crashed("the kernel's process did not come back", "raise device.timeout_s") from None
        self._read(done)

    def _read(self, done: subprocess.CompletedProcess[str]) -> None:
        """Raise what the child's end means."""
        if found := races(done.stderr):
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            raise Race(
                f"data race: {found[0]}{more}",
                "put a barrier, or a release and an acquire, between the two",
                "\n".join([*map(str, found), done.stdout]).strip(),
            )
        if fatal := re.search(r"FATAL: ThreadSanitizer: (.*)", done.stderr):
            raise LabError(
                f"ThreadSanitizer cannot start here: {fatal[1]}",
                "let `setarch -R` work, or set vm.mmap_rnd_bits=28, or leave out sanitize=",
            )
        if not 0 <= done.returncode <= CORRUPTED:
            why = fault(done.stderr) or f"exit status {done.returncode} {done.stderr.strip()[-200:]}"
            raise Crashed(f"the kernel's process ended: {why}", "look for an index far beyond a buffer's end")
        self._judge(done.returncode, done.stdout)


@cache
def _fixed_addresses() -> tuple[str, ...]:
    """A command prefix that turns address randomisation off: ThreadSanitizer knows where memory may lie."""
    prefix = ("setarch", platform.machine(), "-R")
    works = shutil.which(prefix[0]) and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if works else ()

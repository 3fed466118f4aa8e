"""Stacks as an aarch64 machine executes them, in qemu, compared bit for bit with this machine's.

Different there: the fiber switch in assembly, another compiler's code, and its library of mathematics. qemu on x86-64
keeps that machine's order of memory, so a missing fence is not found; the PTX device is for that.
"""

import mmap
import os
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from common.compile.source import Source, build
from common.config.resolve import model_named
from common.devices.guarded import GUARD_BYTES, GuardedBuffer
from common.devices.host.compiler import Compiler
from common.devices.host.device import UNITS, HostDevice, HostProgram, HostSession
from common.devices.ptx.device import PtxDevice
from common.errors import Crashed, LabError
from common.errors.machine import of_system
from common.model.layout import Layout
from common.model.weights import load
from common.stacks.catalog import Catalog, read_catalog
from common.stacks.stack import Stack, choose_stacks

CROSS, QEMU = "aarch64-linux-gnu-", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"  # where Debian's cross compiler has the C library
RUNNER = str(Path(__file__).resolve().parent / "runner.cpp")
GRACE = 60.0  # seconds for a child process to start and to report, added to the limits of its launches
THREADS, BLOCKS, POSITION, STEPS = 256, 4, 37, 3

Kind = type[HostDevice] | type[PtxDevice]


class SharedBuffer(GuardedBuffer):
    """A guarded buffer that a child process can map; `descriptor` is its file descriptor."""

    def _map(self, size: int) -> mmap.mmap:
        self.descriptor = os.memfd_create("buffer")
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, size)
        return mmap.mmap(self.descriptor, size)


class EmulatedDevice(HostDevice):
    """The host device of an aarch64 machine."""

    name = "host+aarch64"
    buffer = SharedBuffer

    def __init__(self, cache: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(cache, *arguments, **options)
        self._compiler = Compiler(cache, CROSS)

    def compile(self, source: Source) -> HostProgram:
        objects = [self.kernel(source), self._compiler.runtime([*UNITS, RUNNER])]
        return HostProgram(source, self._compiler.link(objects, ".exe", "-pie"))

    def _open(self, *arguments: Any) -> HostSession:
        return EmulatedSession(*arguments)


class EmulatedSession(HostSession):
    """One kernel in qemu: each call of `run` is a child process (runner.cpp)."""

    def close(self) -> None:
        self._buffers = {}

    def _load(self, binary: Path) -> None:
        self._binary = binary

    def _launch_all(self, these: Sequence[tuple[int, int]]) -> None:
        lines = "".join(f"{kernel} {last} {self._seed + at}\n" for at, (kernel, last) in enumerate(these))
        self._seed += len(these)
        shared = [cast(SharedBuffer, buffer) for buffer in (*self._buffers.values(), self._counts)]
        named = [f"{buffer.descriptor}:{buffer.start}:{buffer.bytes}" for buffer in shared]
        settings = (GUARD_BYTES, self.blocks, self._workers, self._timeout)
        try:
            done = subprocess.run(
                [QEMU, "-L", LIBRARIES, str(self._binary), *map(str, (*named, *settings))],
                input=lines,
                capture_output=True,
                text=True,
                errors="replace",
                pass_fds=[buffer.descriptor for buffer in shared],
                timeout=len(these) * self._timeout + GRACE,
            )
        except subprocess.TimeoutExpired:
            raise Crashed("the kernel's process does not end", "raise device.timeout_s") from None
        except OSError as error:
            raise of_system(error, "the kernel's process cannot be started") from error
        self._raise_for_status(done.returncode, done.stdout)


def missing() -> str:
    """The programs that are not installed, and what to do; "" if all are."""
    lacking = [name for name in (f"{CROSS}g++", QEMU) if not shutil.which(name)]
    return f"no {' and no '.join(lacking)}; Debian: apt install g++-aarch64-linux-gnu qemu-user" if lacking else ""


def differences(folder: Path, seed: int, here: Kind, there: Kind) -> dict[str, str]:
    """Execute every variant and named stack here and there: by name how they differ, "" where they do not."""
    catalog = read_catalog()
    stacks = choose_stacks(catalog, "catalog", None, {}, THREADS)
    return {stack.name: compare(catalog, stack, folder, seed, here, there) for stack in stacks}


def compare(
    catalog: Catalog,
    stack: Stack,
    folder: Path,
    seed: int,
    here: Kind = HostDevice,
    there: Kind = EmulatedDevice,
) -> str:
    """The buffers that differ after some steps of one stack on the tiny model, the error of one side, or ""."""
    model = model_named("tiny")
    weights, layout = load("synthetic", model, None, folder, seed)[2].flat, Layout(model)
    source = build([catalog.variants[one] for one in stack.variants], model, THREADS, stack.knobs)
    try:
        ours, theirs = (_run(kind(folder, seed=seed), source, layout, weights, seed) for kind in (here, there))
    except LabError as error:
        return str(error)
    return ", ".join(name for name, value in ours.items() if not torch.equal(value, theirs[name]))


def _run(
    device: HostDevice | PtxDevice, source: Source, layout: Layout, weights: torch.Tensor, seed: int
) -> dict[str, torch.Tensor]:
    """The bits of each buffer, and the counts if the device counts, after STEPS from POSITION with a random history."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(layout.model.vocab, (POSITION + 1,), generator=random).tolist()
    history = torch.randn(layout.cache.shape, generator=random).bfloat16()
    session = device.session(device.compile(source), weights, BLOCKS)
    session.reset(ids, POSITION, history)
    session.run(STEPS)
    left = {
        "scratch": session.scratch(),
        "cache": session.cache.entries(0, layout.model.positions),
        "state": session.state(),
    }
    found = {name: values.contiguous().view(torch.uint8) for name, values in left.items()}
    if counts := session.counts():
        found["counts"] = torch.from_numpy(counts.table.view("int64"))
    session.close()
    return found

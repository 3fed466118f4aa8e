"""Stacks as an aarch64 machine executes them, in qemu, compared bit for bit with this machine's.

Different there: another compiler's code, its vectors and its library of mathematics.
"""

import mmap
import os
import shutil
import weakref
from pathlib import Path

import torch

from common.compile.source import Source, build
from common.config.resolve import model_named
from common.devices.guarded import GuardedBuffer
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.model.layout import Layout
from common.model.weights import load
from common.stacks.catalog import Catalog, read_catalog
from common.stacks.stack import Stack, choose_stacks

CROSS, QEMU = "aarch64-linux-gnu-", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"  # where Debian's cross compiler has the C library
THREADS, BLOCKS, POSITION, STEPS = 256, 4, 37, 3


class SharedBuffer(GuardedBuffer):
    """A guarded buffer that a child process can map; `descriptor` is its file descriptor."""

    def _map(self, size: int) -> mmap.mmap:
        self.descriptor = os.memfd_create("buffer")
        weakref.finalize(self, os.close, self.descriptor)
        os.ftruncate(self.descriptor, size)
        return mmap.mmap(self.descriptor, size)


def missing() -> str:
    """The programs that are not installed, and what to do; "" if all are."""
    lacking = [name for name in (f"{CROSS}g++", QEMU) if not shutil.which(name)]
    return f"no {' and no '.join(lacking)}; Debian: apt install g++-aarch64-linux-gnu qemu-user" if lacking else ""


def differences(folder: Path, seed: int, there: type[PtxDevice]) -> dict[str, str]:
    """Execute every variant and named stack here and there: by name how they differ, "" where they do not."""
    catalog = read_catalog()
    stacks = choose_stacks(catalog, "catalog", None, {}, THREADS)
    return {stack.name: compare(catalog, stack, folder, seed, there) for stack in stacks}


def compare(catalog: Catalog, stack: Stack, folder: Path, seed: int, there: type[PtxDevice]) -> str:
    """The buffers that differ after some steps of one stack on the tiny model, the error of one side, or ""."""
    model = model_named("tiny")
    weights, layout = load("synthetic", model, None, folder, seed)[2].flat, Layout(model)
    source = build([catalog.variants[one] for one in stack.variants], model, THREADS, stack.knobs)
    try:
        ours, theirs = (_run(kind(folder, seed=seed), source, layout, weights, seed) for kind in (PtxDevice, there))
    except LabError as error:
        return str(error)
    return ", ".join(name for name, value in ours.items() if not torch.equal(value, theirs[name]))


def _run(
    device: PtxDevice, source: Source, layout: Layout, weights: torch.Tensor, seed: int
) -> dict[str, torch.Tensor]:
    """The bits of each buffer after STEPS from POSITION with a random history."""
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
    return {name: values.contiguous().view(torch.uint8) for name, values in left.items()}

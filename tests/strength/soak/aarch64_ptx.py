"""Stacks as the PTX device of an aarch64 machine executes them, in qemu: one process for a launch (ptx_runner.cpp).

The program names addresses of this process, where the runner maps the same memory. Different there: the machine, by
another compiler for other vectors, and the control word of floating point.
"""

import ctypes
import struct
import subprocess
import weakref
from pathlib import Path
from typing import Any, ClassVar

from common.devices.gxx import built, sha, temporary, version
from common.devices.ptx.device import PtxDevice
from common.devices.ptx.executable import Executable
from common.devices.ptx.library import FLAGS, SOURCES, library
from common.devices.ptx.program import LaunchRow, Machine
from common.errors import Crashed
from tests.strength.soak.aarch64 import CROSS, LIBRARIES, QEMU, SharedBuffer

RUNNER = Path(__file__).resolve().parent / "ptx_runner.cpp"
PARAMETERS = struct.calcsize("<5Qi")  # of the lab's kernels
FOREIGN = {"-march=native", "-mprefer-vector-width=512", "-fvisibility=hidden", "-fPIC"}  # flags that it does without


class MappedBuffer(SharedBuffer):
    """A shared buffer that is found by an address in it."""

    everyone: ClassVar["weakref.WeakSet[MappedBuffer]"] = weakref.WeakSet()

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.everyone.add(self)

    @classmethod
    def at(cls, address: int) -> tuple[int, int]:
        """The file descriptor of the buffer that begins at `address`, and its offset there; (-1, 0): of none."""
        found = (one for one in cls.everyone if one.tensor.data_ptr() == address)
        return next(((one.descriptor, one.start) for one in found), (-1, 0))


class EmulatedMachine(Machine):
    """The machine of an aarch64 processor. Operations have the numbers that they have here."""

    def __init__(self, here: Path, runner: Path) -> None:
        super().__init__(here)
        self._runner = runner

    def load(self, decoded: Executable, counts: bool = False) -> Any:
        return decoded.rows, decoded.more, decoded.filled, decoded

    def free(self, loaded: Any) -> None:
        """Nothing: Python has it."""

    def run(self, loaded: Any, launch: LaunchRow) -> int:
        *rows, decoded = loaded
        sizes = *map(len, rows), decoded.file_bytes, decoded.shared_bytes, decoded.local_bytes, launch.buffer_count
        pointer = ctypes.c_uint64.from_buffer(launch, LaunchRow.parameters.offset).value
        parts = [*(each.tobytes() for each in rows), struct.pack("<7I", *sizes), bytes(launch)]
        parts.append(ctypes.string_at(pointer, PARAMETERS))
        descriptors = []
        for row in launch.buffers[: launch.buffer_count]:
            descriptor, offset = MappedBuffer.at(row.start)
            numbers = struct.pack("<3QqQ", row.start, row.bytes, row.writable, descriptor, offset)
            parts += [row.name, numbers, b"" if descriptor >= 0 else ctypes.string_at(row.start, row.bytes)]
            descriptors += [descriptor] if descriptor >= 0 else []
        with temporary() as folder:
            job, report = Path(folder) / "job", Path(folder) / "report"
            job.write_bytes(b"".join(struct.pack("<Q", len(part)) + part for part in parts))
            command = [QEMU, "-L", LIBRARIES, str(self._runner), str(job), str(report)]
            done = subprocess.run(command, pass_fds=descriptors, capture_output=True, text=True)
            if not report.exists():
                raise Crashed(f"the machine's process ended with {done.returncode}: {done.stderr}", "run it here")
            told = report.read_bytes()
        at = ctypes.c_uint64.from_buffer(launch, LaunchRow.report.offset).value
        ctypes.memmove(at, told + b"\0", len(told) + 1)
        return done.returncode


class EmulatedPtxDevice(PtxDevice):
    """The PTX device of an aarch64 machine."""

    name = "ptx+aarch64"
    buffers = MappedBuffer

    def __init__(self, cache: Path, *settings: Any, **more: Any) -> None:
        super().__init__(cache, *settings, **more)
        flags = [flag for flag in FLAGS if flag not in FOREIGN]
        texts = (file.read_text() for file in (*sorted(SOURCES.iterdir()), RUNNER))
        target = Path(cache).absolute() / f"{sha(version(CROSS), *flags, *texts)}.exe"
        runner = built(target, [*sorted(SOURCES.glob("*.cpp")), RUNNER], [*flags, f"-I{SOURCES}"], [], CROSS)
        self._machine = EmulatedMachine(library(cache), runner)

"""The lab's kernels, executed by the host device's runtime on the memory of the stand-in."""

import ctypes
import re
from collections.abc import Sequence
from functools import cache

import numpy as np
from standin_gpu.compiling import cache_folder
from standin_gpu.machine import MACHINE

from common.devices.counters import FIELDS, Counts
from common.devices.cpu import DEADLOCKED, TIMED_OUT
from common.devices.host.compiler import Compiler
from common.devices.host.device import UNITS, Launch
from common.model.layout import WAIT_WORDS
from common.model.stages import STAGES

ENTRY = re.compile(r"^(?:KERNEL_ENTRY|STAGE_TABLE)\(", re.MULTILINE)
THREADS = re.compile(r"^constexpr int block_threads = (\d+);\nconstexpr int loader_warps = (\d+);", re.MULTILINE)
WORD = r"namespace state_at \{{ .*?constexpr size_t {} = (\d+);"
SPINS = re.compile(r"^block (\d+): \d+ threads? \(first \d+\) spinning at .*, stage (\w+), layer (\d+)$", re.MULTILINE)
ENDLESS_S = 30.0  # a launch that still runs after so many seconds never ends
REPORT = 1 << 16
NORMAL, FAILED, ENDLESS = "normal", "failed", "endless"


def is_lab_kernel(text: str) -> bool:
    return bool(ENTRY.search(text))


def launched_threads(text: str) -> int:
    """Threads of a block, loader warps included."""
    computing, loaders = map(int, THREADS.search(text).groups())
    return computing + 32 * loaders


class LabKernels:
    """The kernels of one text as a library of the host device. Every launch has another order of lanes and blocks."""

    def __init__(self, text: str) -> None:
        self._text, self._seed = text, 0
        compiler = Compiler(cache_folder())
        objects = [compiler.kernel(text), compiler.runtime(UNITS)]
        self._library = ctypes.CDLL(str(compiler.link(objects, ".so")))

    def launch(self, kernel: str, blocks: int, arguments: Sequence[int]) -> tuple[str, Counts]:
        """Execute one launch: how it ended, and its counts. arguments: five addresses, and the last int."""
        *addresses, last = arguments
        stage = STAGES.index(kernel.removeprefix("stage_")) if kernel.startswith("stage_") else 0
        counts = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
        report = ctypes.create_string_buffer(REPORT)
        self._seed += 1
        launch = Launch(
            *addresses,
            (ctypes.c_size_t * 5)(*map(_bytes_from, addresses)),
            stage,
            last,
            blocks,
            1,
            self._seed,
            ENDLESS_S,
            counts.ctypes.data,
            ctypes.cast(report, ctypes.c_char_p),
            len(report),
        )
        status = self._library.lab_launch(ctypes.byref(launch))
        return self._ended(status, report.value.decode(errors="replace"), addresses), Counts(counts)

    def _ended(self, status: int, report: str, addresses: Sequence[int]) -> str:
        """Behavior of a GPU. Blocks that wait at a grid barrier for ever give up, report and trap."""
        if status == DEADLOCKED:
            waiting = SPINS.findall(report)
            for block, stage, layer in waiting:
                words = self._words(addresses[4], int(block) * WAIT_WORDS, WAIT_WORDS)
                words[:] = 1 + STAGES.index(stage), int(layer), self._state(addresses, "arrived"), 0
                words[3] = self._state(addresses, "epoch")
            return FAILED if waiting else ENDLESS
        if status == TIMED_OUT:
            return ENDLESS
        return FAILED if status else NORMAL

    def _state(self, addresses: Sequence[int], name: str) -> int:
        found = re.search(WORD.format(name), self._text)
        return int(self._words(addresses[3], int(found[1]), 1)[0]) if found else 0

    @staticmethod
    def _words(address: int, at: int, count: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address + 4 * at))


def _bytes_from(address: int) -> int:
    """Bytes of the buffer from this address on."""
    buffer = MACHINE.buffer_at(address)
    return buffer.bytes.ctypes.data + buffer.size - address if buffer else 0


@cache
def lab_kernels(text: str) -> LabKernels:
    return LabKernels(text)

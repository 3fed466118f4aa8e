"""PTX device that keeps how often the rows of a stack's kernels were executed, by their place in the CUDA text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.devices.ptx.device import PtxDevice
from common.devices.ptx.program import PtxKernel, Told
from common.devices.ptx.session import PtxSession

Place = tuple[tuple[str, int], ...]  # file and line of a row, then of each call that it was inlined at


@dataclass
class Executed:
    """Threads that executed the rows of a place, and those that went on or jumped at its conditional branches."""

    threads: int = 0
    straight: int = 0
    jumped: int = 0

    def add(self, threads: int, straight: int, jumped: int) -> None:
        self.threads += threads
        self.straight += straight
        self.jumped += jumped


class CoveredSession(PtxSession):
    """A session that counts every launch; `count` itself therefore has no counts."""

    def __init__(self, device: "CoveredDevice", program: Any, *arguments: Any) -> None:
        super().__init__(device, program, *arguments)
        self._device, self._executed = device, dict[PtxKernel, np.ndarray]()
        self._counting = self._counted = program.source.stack == device.variants

    def count(self, steps: int = 1) -> Any:
        found = super().count(steps)
        self._counting = self._counted
        return found

    def _add(self, kernel: PtxKernel, executed: np.ndarray) -> None:
        if self._counted:
            self._executed[kernel] = self._executed.get(kernel, 0) + executed

    def close(self) -> None:
        for kernel, executed in self._executed.items():
            self._device.add(kernel, executed)
        super().close()


class CoveredDevice(PtxDevice):
    """The PTX device without its race detector, which counts all launches of one stack's kernels.

    variants: of that stack; others, such as its parent, are not counted. places: the counts of all closed sessions.
    """

    sessions = CoveredSession

    def __init__(self, variants: Sequence[str], *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.variants, self.places = tuple(variants), dict[Place, Executed]()

    def add(self, kernel: PtxKernel, executed: np.ndarray) -> None:
        """Add counts to `places`. executed: as in Ended.

        A branch often has no line of its own, and would take that of the row before it: it is where its condition was
        made.
        """
        rows, fields = kernel.rows(), kernel.decoded.rows
        made: dict[int, Told] = {}  # by register, the row that wrote it last
        for row, counts, to, condition in zip(
            rows, executed.tolist(), fields["d"].tolist(), fields["a"].tolist(), strict=True
        ):
            if row.opcode in ("bra.if", "bra.unless"):
                self._place(made.get(condition, row)).add(0, *counts[:2])
            self._place(row).add(sum(counts[:-1]), 0, 0)
            made[to] = row

    def _place(self, row: Told) -> Executed:
        return self.places.setdefault(tuple((line.file, line.line) for line in row.line.chain()), Executed())

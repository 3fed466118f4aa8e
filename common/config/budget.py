"""Budget of a command: no row begins that would not end in time, by what the rows before it took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

LATEST = 5  # rows that an estimate is made from: the first of a process takes longer, and ages out


def clock() -> float:
    """Seconds; tests replace it."""
    return time.monotonic()


@dataclass(frozen=True)
class Budget:
    """Seconds that rows may take. until: by `clock`; None: no limit. first: of a row, while none like it is known."""

    until: float | None
    first: float

    @property
    def left(self) -> float:
        return float("inf") if self.until is None else self.until - clock()

    def estimate(self, took: Sequence[float]) -> float:
        """Seconds of the next row: the longest of the latest rows like it."""
        return max(took[-LATEST:], default=self.first)

    def holds(self, took: Sequence[float]) -> bool:
        """True if a row like those that took so many seconds would end in time."""
        return self.estimate(took) <= self.left

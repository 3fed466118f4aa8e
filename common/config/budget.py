"""Budget of a command: a row begins only if it should end in time, by the seconds of the rows before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic as clock  # tests replace it

LATEST = 5  # rows that an estimate is made from: the first of a process takes longer, and ages out


@dataclass(frozen=True)
class Budget:
    """Seconds that rows may take. until: by `clock`; None: no limit. first: of a row, before any like it has run."""

    until: float | None
    first: float

    @property
    def left(self) -> float:
        return float("inf") if self.until is None else self.until - clock()

    def estimate(self, took: Sequence[float]) -> float:
        """Seconds of the next row: the longest of the latest rows like it."""
        return max(took[-LATEST:], default=self.first)

    def holds(self, took: Sequence[float]) -> bool:
        """True if another row fits the budget; took: seconds of rows like it."""
        return self.estimate(took) <= self.left

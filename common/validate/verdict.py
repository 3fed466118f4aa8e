"""Result of a validation: the first mismatch, or the tap nearest to its tolerance."""

from dataclasses import dataclass, replace
from typing import Any

from common.display.table import Shown

PASSED = "PASSED"
Tap = tuple[str, int | None]  # stage and layer


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element.

    stage: of the wrong tap. Also `rope`, `key` and `value`: further results of embed and qk_norm_rope; `cache`: a
    position that must not change; `scratch`: between two taps; `state`: token ids, token, position, or between them;
    `reset`: a buffer after a reset.
    index: of the element, in the tap's shape. tolerance: the allowed error; 0 if the value must be exact.
    note: the broken rule, other than a tolerance, and the step and scenario.
    """

    stage: str
    layer: int | None
    index: tuple[int, ...]
    got: float
    want: float
    tolerance: float
    note: str = ""

    def noted(self, more: str) -> "Mismatch":
        """The same with a further note."""
        return replace(self, note=", ".join(filter(None, (self.note, more))))

    def __str__(self) -> str:
        layer = "" if self.layer is None else f" layer {self.layer}"
        index = "".join(f"[{i}]" for i in self.index)
        limit = f" +- {self.tolerance:.2g}" if self.tolerance else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.stage}{layer} {index} is {self.got:.9g}, want {self.want:.9g}{limit}{note}"


@dataclass(frozen=True)
class Worst:
    """The tap nearest to its tolerance. error: its largest error; ratio: error / tolerance."""

    stage: str
    layer: int | None
    error: float
    ratio: float


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """Result of one validation. seed: of the scenarios, to repeat it. steps: number compared with the reference.

    not_exercised: cases that no step has covered; the verdict says nothing about them.
    """

    mismatch: Mismatch | None
    worst: Worst
    steps: int
    seed: int
    not_exercised: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.mismatch is None

    @property
    def status(self) -> str:
        return PASSED if self.passed else "MISMATCH"

    def columns(self) -> dict[str, Any]:
        found = {"mismatch": str(self.mismatch)} if self.mismatch else {}
        worst = {"max error": self.worst.error, "at stage": self.worst.stage, "share of tolerance": self.worst.ratio}
        return {"verdict": self.status} | found | worst | {"steps": self.steps, "seed": self.seed}

    def __str__(self) -> str:
        if self.mismatch:
            return f"MISMATCH {self.mismatch}; seed {self.seed}"
        layer = "" if self.worst.layer is None else f" layer {self.worst.layer}"
        return (
            f"PASSED {self.steps} steps; nearest to its tolerance: {self.worst.stage}{layer}, "
            f"error {self.worst.error:.2g}, {self.worst.ratio:.0%}; seed {self.seed}"
        )

"""What validation says: the first thing that is wrong, or how near to its tolerance a right kernel came."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mismatch:
    """The first thing that is wrong.

    stage: the stage whose tap it is; or `rope`, `key`, `value`: what embed and qk_norm_rope leave beside their tap;
    or `cache`: positions that must not change; `state`: token ids and position; `reset`: the device's own start.
    index: of the first wrong element in the tap's shape. note: the rule that is broken, where, if it is no tolerance.
    """

    stage: str
    layer: int | None
    index: tuple[int, ...]
    got: float
    want: float
    tolerance: float
    note: str = ""

    def __str__(self) -> str:
        layer = "" if self.layer is None else f" layer {self.layer}"
        index = "".join(f"[{i}]" for i in self.index)
        limit = f" +- {self.tolerance:.2g}" if self.tolerance else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.stage}{layer} {index} is {self.got:.9g}, want {self.want:.9g}{limit}{note}"


@dataclass(frozen=True)
class Worst:
    """The tap that came nearest to its tolerance: its largest error, and that error as a share of the tolerance."""

    stage: str
    layer: int | None
    error: float
    ratio: float


@dataclass(frozen=True)
class Verdict:
    """What validation found. `seed` repeats it; `steps` is how many steps were compared with the reference."""

    mismatch: Mismatch | None
    worst: Worst
    steps: int
    seed: int

    @property
    def passed(self) -> bool:
        return self.mismatch is None

    @property
    def status(self) -> str:
        return "PASSED" if self.passed else "MISMATCH"

    def __str__(self) -> str:
        if self.mismatch:
            return f"MISMATCH {self.mismatch}; seed {self.seed}"
        layer = "" if self.worst.layer is None else f" layer {self.worst.layer}"
        return (
            f"PASSED {self.steps} steps; nearest to its tolerance: {self.worst.stage}{layer}, "
            f"error {self.worst.error:.2g}, {self.worst.ratio:.0%}; seed {self.seed}"
        )

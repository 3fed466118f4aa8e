"""An array against the file that it should equal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import LabError
from experiments.ptx.elements import is_float, numbers_of, read

# Absolute and relative. Measured against float64, as a share of 1 + |right|: sums of 4096 products in f32 1.1e-4 by one
# thread and 2.2e-5 by a warp, in f64 2.3e-13; rounding to f16 3.2e-4, to bf16 2.8e-3. Integers are exact.
TOLERANCES = {"f64": 1e-12, "f32": 2e-4, "f16": 1e-3, "bf16": 8e-3}


@dataclass(frozen=True)
class Compared:
    """wrong: elements beyond the tolerance. largest: difference at index `at`, inf beside a NaN."""

    wrong: int
    size: int
    largest: float
    at: tuple[int, ...]
    found: float
    wanted: float

    def __str__(self) -> str:
        if not self.wrong:
            return f"right, largest difference {self.largest:.3g}"
        return f"{self.wrong} of {self.size} wrong, {self.found:.9g} for {self.wanted:.9g} at {list(self.at)}"


@dataclass(frozen=True)
class Expected:
    """The right content of an array, and how far it may differ."""

    file: Path
    values: np.ndarray
    absolute: float
    relative: float

    def compare(self, bits: np.ndarray, kind: str) -> Compared:
        """NaN equals NaN and an infinity itself; beside any other number they are wrong. kind: type of the array."""
        elements = numbers_of(bits, kind)
        # 64 bits of significand or more: exact for all types
        found, wanted = elements.astype(np.longdouble), self.values.astype(np.longdouble)
        with np.errstate(all="ignore"):
            wrong = ~np.isclose(found, wanted, self.relative, self.absolute, equal_nan=True)
            apart = np.abs(found - wanted)
        apart[(found == wanted) | (np.isnan(found) & np.isnan(wanted))] = 0
        apart[np.isnan(apart)] = np.inf
        at = np.unravel_index(int(np.argmax(np.where(wrong, apart, -1) if wrong.any() else apart)), apart.shape)
        place = tuple(map(int, at))
        values = elements[at].item(), self.values[at].item()
        return Compared(int(wrong.sum()), apart.size, float(apart[at]), place, *values)


def expected(file: Path, tolerance: Any, kind: str, shape: tuple[int, ...], path: str) -> Expected:
    """The keys `expect` and `tolerance` of an array. Raises LabError."""
    values = read(file, f"{path}.expect")
    if values.shape != shape or values.dtype.kind not in ("f" if is_float(kind) else "iu"):
        raise LabError(
            f"{path}.expect: {file} holds {values.dtype} {list(values.shape)}, and the array {kind} {list(shape)}",
            "save it in the shape of the array, floats for floats",
        )
    usual = TOLERANCES.get(kind, 0)
    given = {"absolute": usual, "relative": usual} if tolerance is None else tolerance
    both = given if isinstance(given, dict) else {"absolute": given, "relative": given}
    numbers = all(type(each) in (int, float) and 0 <= each < 1e300 for each in both.values())
    if not both or not numbers or set(both) - {"absolute", "relative"}:
        raise LabError(
            f"{path}.tolerance={given} is no number of at least 0, and no two of them",
            "give tolerance: 1e-5, or tolerance: {absolute: 1e-6, relative: 1e-5}",
        )
    return Expected(file, values, float(both.get("absolute", 0)), float(both.get("relative", 0)))

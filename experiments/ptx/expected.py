"""An array against the file that it should equal."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import LabError
from experiments.ptx.elements import dtype, is_float, numbers_of, read

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
    """The right content of an array: float64 for floats, the array's own type for integers."""

    file: Path
    values: np.ndarray
    absolute: float
    relative: float

    def compare(self, bits: np.ndarray, kind: str) -> Compared:
        """NaN equals NaN and an infinity itself; beside any other number they are wrong. kind: type of the array."""
        found, wanted = numbers_of(bits, kind), self.values
        if is_float(kind):
            found = found.astype(np.float64)
            with np.errstate(all="ignore"):
                same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
                apart = np.where(same, 0, np.abs(found - wanted))
            apart = np.where(np.isfinite(apart), apart, np.inf)
        else:  # modulo 2^64 the difference of the larger and the smaller is exact
            large, small = np.maximum(found, wanted), np.minimum(found, wanted)
            apart = (large.astype(np.uint64) - small.astype(np.uint64)).astype(np.float64)
        with np.errstate(all="ignore"):
            limit = self.absolute + self.relative * np.abs(wanted.astype(np.float64))
        wrong = (apart > np.where(np.isfinite(limit), limit, 0)) & (apart > 0)
        at = np.unravel_index(int(np.argmax(np.where(wrong, apart, -1) if wrong.any() else apart)), apart.shape)
        place = tuple(map(int, at))
        return Compared(int(wrong.sum()), apart.size, float(apart[at]), place, found[at].item(), wanted[at].item())


def expected(file: Path, tolerance: Any, kind: str, shape: tuple[int, ...], path: str) -> Expected:
    """The keys `expect` and `tolerance` of an array. Raises LabError."""
    values = read(file, f"{path}.expect")
    if values.shape != shape:
        raise LabError(
            f"{path}.expect: {file} has the shape {list(values.shape)}, and the array {list(shape)}",
            "save it in the shape of the array",
        )
    if not values.size:
        raise LabError(f"{path}.expect: {file} holds no number", "leave expect out")
    if values.dtype.kind not in ("f" if is_float(kind) else "iu"):
        raise LabError(f"{path}.expect: {file} holds {values.dtype}, and the array {kind}", "save it as such numbers")
    if is_float(kind):
        return Expected(file, values.astype(np.float64), *_tolerance(tolerance, kind, path))
    low, high = np.iinfo(dtype(kind)).min, np.iinfo(dtype(kind)).max
    if not low <= int(values.min()) <= int(values.max()) <= high:
        raise LabError(f"{path}.expect: {file} has numbers that do not fit in {kind}", "correct the file, or the type")
    return Expected(file, values.astype(dtype(kind)), *_tolerance(tolerance, kind, path))


def _tolerance(given: Any, kind: str, path: str) -> tuple[float, float]:
    """Absolute and relative: of a number both; a key that a mapping leaves out is 0."""
    if given is None:
        return TOLERANCES.get(kind, 0.0), TOLERANCES.get(kind, 0.0)
    remedy = "give tolerance: 1e-5, or tolerance: {absolute: 1e-6, relative: 1e-5}"
    one = {"absolute": given, "relative": given} if not isinstance(given, dict) else given
    if not one or set(one) - {"absolute", "relative"}:
        raise LabError(f"{path}.tolerance={given} has no or other keys than absolute and relative", remedy)
    for each in one.values():
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each < math.inf or each > 1e300:
            raise LabError(f"{path}.tolerance={given} is no number of at least 0", remedy)
    return float(one.get("absolute", 0)), float(one.get("relative", 0))

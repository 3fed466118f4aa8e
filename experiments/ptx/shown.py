"""Result of a launch, for tables, as JSON, and as files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from common.devices.ptx.report import DEADLOCKED, FAULTED, FINISHED, RACED, TIMED_OUT, TRAPPED
from common.errors import LabError
from experiments.ptx.arguments import Argument, Given
from experiments.ptx.expected import Compared

ENDS = {
    FINISHED: "finished",
    DEADLOCKED: "deadlock: no thread can go on",
    TIMED_OUT: "not finished in time",
    TRAPPED: "trap",
    FAULTED: "fault",
    RACED: "race",
}
SHOWN = 4  # values of an array


@dataclass(frozen=True)
class Result:
    """One launch that has ended.

    title: of the kernel, its sizes and seed. status: the executor's, and its report with source lines. stored: names of
    arrays that a store has hit. counts: by name.
    """

    title: str
    facts: Mapping[str, Any]
    given: Given
    status: int
    report: str
    stored: frozenset[str]
    counts: Mapping[str, float]

    @cached_property
    def compared(self) -> dict[str, Compared]:
        """Arrays with something to expect, by name; of a kernel that has not finished none."""
        arrays = self.given.arrays if self.status == FINISHED else ()
        return {one.name: one.expected.compare(one.bits, one.type) for one in arrays if one.expected}

    @property
    def right(self) -> bool:
        return self.status == FINISHED and not any(each.wrong for each in self.compared.values())

    @property
    def end(self) -> str:
        wrong = [name for name, each in self.compared.items() if each.wrong]
        return ENDS[self.status] + (f", {' and '.join(wrong)} wrong" if wrong else "")

    def lines(self) -> list[str]:
        """The report, and a line for each array that is compared."""
        return [*self.report.splitlines(), *(f"{name}: {each}" for name, each in self.compared.items())]

    def arrays(self) -> dict[str, dict[str, Any]]:
        """Figures of each array that was written or is compared, by name."""
        shown = [one for one in self.given.arrays if one.name in self.stored or one.name in self.compared]
        return {one.name: _summary(one) for one in shown}

    def json(self) -> dict[str, Any]:
        arrays: dict[str, dict[str, Any]] = self.arrays()
        for name, each in self.compared.items():
            arrays[name]["expect"] = {"right": not each.wrong, **vars(each)}
        made = {"end": ENDS[self.status], "report": self.report, "arrays": arrays, "counts": dict(self.counts)}
        return {**self.facts, **made}

    def row(self) -> dict[str, Any]:
        """Columns of a sweep's table."""
        most = max((each.largest for each in self.compared.values()), default=None)
        compares = any(one.expected for one in self.given.arrays)
        expect = {"largest difference": None if most is None else f"{most:.3g}"} if compares else {}
        return {"end": self.end, **expect, **self.counts}

    def save(self, folder: Path) -> None:
        """Each array that was written as NAME.npy, in bf16 as fp32. Raises LabError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for one in self.given.arrays:
                if one.name in self.stored:
                    np.save(folder / f"{one.name}.npy", one.numbers)
        except OSError as error:
            raise LabError(f"out={folder} cannot be written: {error.strerror}", "give out=FOLDER") from error


def _summary(one: Argument) -> dict[str, Any]:
    """Figures of an array: NaN is in none but its own count."""
    values = one.numbers.ravel()
    numbers = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    least, most = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)
    return {
        "type": one.type,
        "shape": " x ".join(map(str, one.bits.shape)),
        "min": least,
        "max": most,
        "NaN": values.size - numbers.size,
        "first values": ", ".join(f"{value:.6g}" for value in values[:SHOWN].tolist()),
    }

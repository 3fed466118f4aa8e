"""Results of a launch, as tables, as JSON, and as files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import LabError
from experiments.ptx.arguments import Argument, Given
from experiments.ptx.expected import Compared
from experiments.ptx.launch import Outcome

SHOWN = 4  # values of an array


@dataclass(frozen=True)
class Result:
    """One launch that has ended. title: of the kernel, its sizes and seed. label: of a row of a sweep."""

    title: str
    facts: Mapping[str, Any]
    label: Mapping[str, str]
    given: Given
    outcome: Outcome

    @cached_property
    def compared(self) -> dict[str, Compared]:
        """Arrays with something to expect, by name; of a kernel that has not finished none."""
        arrays = self.given.arrays if self.outcome.finished else ()
        return {one.name: one.expected.compare(one.bits, one.type) for one in arrays if one.expected}

    @property
    def written(self) -> list[Argument]:
        return [one for one in self.given.arrays if one.name in self.outcome.stored]

    @property
    def right(self) -> bool:
        return self.outcome.finished and not any(each.wrong for each in self.compared.values())

    @property
    def end(self) -> str:
        wrong = [name for name, each in self.compared.items() if each.wrong]
        return f"{self.outcome.end}, {' and '.join(wrong)} wrong" if wrong else self.outcome.end

    def lines(self) -> list[str]:
        """The report, and a line for each array that is compared."""
        return [*self.outcome.report.splitlines(), *(f"{name}: {each}" for name, each in self.compared.items())]

    def arrays(self) -> dict[str, dict[str, Any]]:
        """Figures of each array that was written or is compared, by name."""
        shown = [one for one in self.given.arrays if one.name in self.outcome.stored or one.name in self.compared]
        return {one.name: _summary(one) for one in shown}

    def json(self) -> dict[str, Any]:
        arrays: dict[str, dict[str, Any]] = self.arrays()
        for name, each in self.compared.items():
            arrays[name]["expect"] = {"right": not each.wrong, **vars(each)}
        made = {"end": self.outcome.end, "report": self.outcome.report, "arrays": arrays}
        seconds = {"seconds": self.outcome.seconds} if self.outcome.seconds is not None else {}
        return {**self.facts, **made, "counts": dict(self.outcome.counts), **seconds}

    def row(self) -> dict[str, Any]:
        """Row of a sweep's table."""
        most = max((each.largest for each in self.compared.values()), default=None)
        seconds = self.outcome.seconds
        times = {} if seconds is None else {"us": round(1e6 * seconds, 2)}
        compares = any(one.expected for one in self.given.arrays)
        expect = {"largest difference": None if most is None else f"{most:.3g}"} if compares else {}
        return {**self.label, "end": self.end, **expect, **times, **self.outcome.counts}


def prepare(out: Path, given: Given) -> None:
    """Make the folder of `out=`, without what earlier runs have left of these arrays there. Raises LabError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        read = {file.resolve() for one in given.arrays for file in one.read}
        right = {one.expected.file.resolve() for one in given.arrays if one.expected}
        of_rows = (folder for folder in out.iterdir() if folder.name.isdigit() and folder.is_dir())
        files = [_file(folder, one).resolve() for folder in (out, *of_rows) for one in given.arrays]
        for file in files:
            if file in right:
                raise LabError(f"out={out} would overwrite {file.name}, which is expected", "give another folder")
        for file in {*files} - read:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from error


def save(written: Sequence[Argument], folder: Path) -> None:
    """Each array as NAME.npy, in bf16 as fp32. Raises LabError."""
    try:
        folder.mkdir(exist_ok=True)
        for one in written:
            np.save(_file(folder, one), one.numbers)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _file(folder: Path, one: Argument) -> Path:
    return folder / f"{one.name}.npy"


def _unwritable(folder: Path, error: OSError) -> LabError:
    return LabError(f"out={folder} cannot be written: {error.strerror}", "give out=FOLDER")


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

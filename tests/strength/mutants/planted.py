"""Faults for the PTX device: each ordering call of the kernels left out, and mistakes in the CUDA half of the port.

The host device has a half of its own, and order between two threads shows there by luck only. Here one trial, one grid
and one schedule must do: what conflicts need only be executed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from common import ROOT
from common.compile.nvrtc import compile_ptx
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.model.shapes import Model
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.prove import prove, text_of
from tests.strength.mutants.generated import UNUSED, known, mutants_of
from tests.strength.mutants.mutation import Mutant, edited, read_mutants
from tests.strength.ptx import ODD, RING

PORT = Path(__file__).with_name("port")
ARCH = 90
TIMEOUT = 30.0  # seconds for a launch that loops without waiting; a deadlock is detected at once
# Rings have two slots, each used again and again. ODD: sizes that are no power of two.
TRIALS = (RING, ODD)
RULE, VALUE, SAME_CODE, SURVIVED = "rule", "value", "same code", "survived"


@dataclass(frozen=True)
class Planted:
    """fate: found by a rule that a launch broke, by a wrong value, or not; or the same PTX. how: what was reported."""

    mutant: Mutant
    fate: str
    how: str = ""

    @classmethod
    def lost(cls, mutant: Mutant, how: str) -> "Planted":
        """Result of a fault whose process ended or hung, which the machine should not let it do."""
        return cls(mutant, SURVIVED, how)

    @property
    def title(self) -> str:
        return f"{self.mutant.kind}: {self.mutant.name}"

    @property
    def equivalent(self) -> str:
        """Reason why no run can show it; '' for none."""
        return next((each.reason for each in known("planted") if each.has(self.mutant)), "")

    @property
    def as_expected(self) -> bool:
        return (self.fate in (RULE, VALUE)) != bool(self.equivalent)

    def as_record(self) -> dict[str, Any]:
        """The fields that a record keeps."""
        return {"class": self.mutant.kind, "name": self.mutant.name, "fate": self.fate, "how": self.how}


def left_out() -> Iterator[Mutant]:
    """Each call that orders memory or threads, left out at each of its places."""
    for path in (*sorted((ROOT / "common" / "kernel").glob("*.cuh")), *sorted((ROOT / "variants").glob("*.cu"))):
        name = str(path.relative_to(ROOT))
        if name not in UNUSED:
            made = mutants_of(name, path.read_text())
            yield from (mutant for mutant in made if mutant.kind == "synchronization dropped")


@cache
def planted() -> tuple[Mutant, ...]:
    """All faults, those of the port first."""
    return (*read_mutants(PORT), *left_out())


def check_planted(mutant: Mutant, seed: int, cache: Path) -> Planted:
    """Prove the stacks whose PTX the fault changes, one after another, until one finds it."""
    torch.set_num_threads(1)
    device = PtxDevice(cache / "kernels", ARCH, seed, races=True, timeout=TIMEOUT)
    catalog, edit = read_catalog(), partial(edited, mutant=mutant)
    fate = SAME_CODE
    for trial, stack in product(TRIALS, _stacks(mutant.edits[0].file)):
        source = text_of(catalog, stack, trial)
        if mutant.edits[0].file not in source.text or _ptx(source.text, cache) == _ptx(edit(source.text), cache):
            continue
        fate = SURVIVED
        try:
            verdict = prove(device, catalog, stack, trial, cache, seed, edit)
        except LabError as error:
            return Planted(mutant, RULE, f"{stack.name}: {error.cause}")
        if verdict.mismatch:
            return Planted(mutant, VALUE, f"{stack.name}: {verdict.mismatch}")
    return Planted(mutant, fate)


def _stacks(file: str) -> list[Stack]:
    """All of the catalog: the one that is named like the file first, then the shortest."""
    every = choose_stacks(read_catalog(), "catalog", None, {}, RING.threads)
    own = Path(file).stem
    return sorted(every, key=lambda stack: (stack.variants[-1:] != (own,), len(stack.variants)))


def _ptx(text: str, cache: Path) -> str:
    """The PTX of a text, without source lines."""
    found = compile_ptx(text, f"sm_{ARCH}", cache_dir=cache / "kernels")
    return re.sub(r"^\s*\.loc.*\n", "", found.split("\t.section")[0], flags=re.MULTILINE)

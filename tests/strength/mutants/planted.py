"""Faults for the PTX device: each ordering call of the kernels left out, and mistakes in the CUDA half of the port.

The host device has a half of its own, and order between two threads shows there by luck only. Here one trial, one grid
and one schedule must do: what conflicts need only be executed.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from common import ROOT
from common.compile.nvrtc import compile_ptx
from common.compile.source import Source
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.check import validate
from common.validate.prove import expected, text_of
from common.validate.scenarios import Start, drawn
from common.validate.trials import Trial
from experiments.tables.result_table import COUNTED, ResultTable
from tests.strength.mutants.generated import UNUSED, VERIFY_ROWS, known, mutants_of
from tests.strength.mutants.mutation import Mutant, edited, read_mutants
from tests.strength.mutants.operators import OPERATORS
from tests.strength.ptx import ODD, RING, USUAL

PORT = Path(__file__).with_name("port")
ARCH = 90
TIMEOUT = 30.0  # seconds for a launch that loops without waiting; a deadlock is detected at once
# Rings of two slots, each used again and again: with all other knobs low, where no copy is ahead of its stage, and as
# given, where launches have several tokens. Sizes that are no power of two; a slot holds one row. Each token
# is chosen by one lane, which may be one that a fault spares.
SMALLEST = {"slots": 2, "kb": 6, "window": 2, "chunk": 16}
LONG_ROWS = replace(RING, name="long rows", model=replace(RING.model, name="long rows", intermediate=2824))
GIVEN = replace(USUAL, name="knobs as given")
# A single warp does everything, and reuses what its lanes have in common.
ONE_WARP = replace(RING, name="one warp", threads=32, blocks=1)
# The small model with both first: some calls are compiled only with knobs as given.
TRIALS = tuple(replace(trial, starts=(Start(33, 5), Start(0, 2))) for trial in (RING, GIVEN, ODD, LONG_ROWS, ONE_WARP))
# The only stacks that copy 16 bytes by cp.async, and that bring several tokens to tensor cores.
MORE = (("vec128", "cp_async"), VERIFY_ROWS)
QUESTION = "how many faults in the CUDA half of the port, and missing calls that order, the PTX device finds"
NOTES = (
    "Each on the first of five trials that shows it, on one grid with one schedule. rule: found by what a launch may "
    "not do, such as a race, an address or a deadlock; value: by the validation. equivalent: no run can show it, for "
    "the reason in tests/strength/mutants/equivalent.yaml, which names the test that sees it in PTX where one can.",
)
NOT_CALLED = ("shared_address", "BlockMemory", "SHARED_BYTES", "KERNEL_ENTRY", "STAGE_ENTRY")  # by name, as port::name
DROPPED = [operator for operator in OPERATORS if operator.name == "synchronization dropped"]
RULE, VALUE, SAME_CODE, SURVIVED = "rule", "value", "same code", "survived"


@dataclass(frozen=True)
class Planted:
    """fate: found by a rule that a launch broke, by a wrong value, or not; or the same PTX. how: what was reported."""

    mutant: Mutant
    fate: str
    how: str = ""

    @classmethod
    def lost(cls, mutant: Mutant, how: str) -> "Planted":
        """Result of a fault that ended or hung its process, which the machine should prevent."""
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
            for mutant in mutants_of(name, path.read_text(), DROPPED):  # all stacks multiply weights in bf16
                yield replace(mutant, sizes={key: form for key, form in mutant.sizes.items() if key == "kv_format"})


@cache
def planted() -> tuple[Mutant, ...]:
    """All faults, the port's first."""
    return (*read_mutants(PORT), *left_out())


def check_planted(mutant: Mutant, seed: int, cache: Path) -> Planted:
    """Validate the stacks with changed PTX, one after another, until one finds the fault.

    A fault that is listed as equivalent is tried on the first of them only.
    """
    torch.set_num_threads(1)
    listed = bool(Planted(mutant, SURVIVED).equivalent)
    fate = SAME_CODE
    trials = [trial.like(mutant.model) for trial in TRIALS]
    for trial, stack in _tries(mutant, trials[:1] if listed else trials):
        source = text_of(read_catalog(), stack, trial)
        wrong = replace(source, text=edited(source.text, mutant))
        if _ptx(wrong, cache) == _ptx(source, cache):
            continue
        fate = SURVIVED
        if evidence := _evidence(wrong, trial, seed, cache):
            return Planted(mutant, evidence[0], f"{stack.name}: {evidence[1]}")
        if listed:
            break
    return Planted(mutant, fate)


def _tries(mutant: Mutant, trials: Sequence[Trial]) -> list[tuple[Trial, Stack]]:
    """All stacks that execute the fault's text, trial by trial; but the first of them on all of the small model first.

    Most faults are found there. To see that the others are not affected takes two compilations each.
    """
    texts = ((each, text_of(read_catalog(), each, trials[0]).text) for each in _stacks(mutant))
    stacks = [stack for stack, text in texts if _executes(text, mutant)]
    return sorted(product(trials, stacks), key=lambda one: one[0].model != trials[0].model or one[1] != stacks[0])


def _executes(text: str, mutant: Mutant) -> bool:
    """False for a text without the fault's file, or without a call of the function of the port that is wrong."""
    if mutant.area == "port" and mutant.kind not in NOT_CALLED:
        return re.search(rf"port::{mutant.kind}[<(]", text) is not None
    return mutant.edits[0].file in text


def _evidence(source: Source, trial: Trial, seed: int, cache: Path) -> tuple[str, str] | None:
    """RULE or VALUE and what was reported; None for a kernel that passes.

    Not compared with its parent, which would have the fault, too.
    """
    layout, weights, reference = expected(trial.model, trial.weights, cache, seed)
    starts = drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed))
    device = PtxDevice(cache / "kernels", ARCH, seed, races=True, timeout=TIMEOUT)
    try:
        with closing(device.session(device.compile(source), weights, trial.blocks)) as session:
            verdict = validate(session, weights, trial.model, starts, seed, reference=reference)
    except LabError as error:
        return RULE, error.cause
    return (VALUE, str(verdict.mismatch)) if verdict.mismatch else None


def _stacks(mutant: Mutant) -> list[Stack]:
    """All of the catalog, and MORE: first the mutant's or its file's own, then the shortest."""
    catalog, own = read_catalog(), mutant.stack[-1] if mutant.stack else Path(mutant.edits[0].file).stem
    names = [stack.variants for stack in choose_stacks(catalog, "catalog", None, {}, RING.threads)]
    every: list[Stack] = []
    for variants in (*names, *MORE):
        known = {knob.name for name in variants for knob in catalog.variants[name].knobs}
        small = {name: value for name, value in SMALLEST.items() if name in known}
        every += choose_stacks(catalog, BASELINE, list(variants), small, RING.threads)
    return sorted(every, key=lambda stack: (stack.variants[-1:] != (own,), len(stack.variants)))


def _ptx(source: Source, cache: Path) -> str:
    """Its PTX without source lines. Raises CompileError for a fault that is no text."""
    found = compile_ptx(source.text, f"sm_{ARCH}", cache_dir=cache / "kernels")
    return re.sub(r"^\s*\.loc.*\n", "", found.split("\t.section")[0], flags=re.MULTILINE)


def of_planted(found: Sequence[Planted]) -> ResultTable:
    """A row for each class, and their sum. Notes name every equivalent fault and every one that is not found."""

    def row(name: str, ones: Sequence[Planted]) -> dict[str, str | int]:
        listed = sum(bool(one.equivalent) for one in ones)
        by = {fate: sum(one.fate == fate for one in ones) for fate in (RULE, VALUE)}
        lost = sum(not one.as_expected for one in ones)
        return {"class": name, "planted": len(ones), **by, "equivalent": listed, "not as expected": lost}

    kinds = list(dict.fromkeys(one.mutant.kind for one in found))
    rows = [row(kind, [one for one in found if one.mutant.kind == kind]) for kind in kinds]
    notes = [*NOTES, *(f"equivalent: {one.title}: {one.equivalent}" for one in found if one.equivalent)]
    notes += [f"not as expected: {one.title}: {one.fate}, {one.how}" for one in found if not one.as_expected]
    return ResultTable("planted", QUESTION, [*rows, row("all", found)], COUNTED, notes)

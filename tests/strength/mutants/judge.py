"""Fate of a mutant that an operator made: no code of its own, found by a validation, or not found.

A mutant that compiles to the original's PTX for a trial is not run there: it cannot differ ("trivial compiler
equivalence", Papadakis et al. 2015).
"""

import re
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import torch

from common.compile.nvrtc import compile_ptx
from common.config.resolve import model_named
from common.devices.ptx.device import BLOCKS, PtxDevice
from common.errors import CompileError, Crashed, Hung
from common.model.format import read_formats
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import choose_stacks
from common.validate.prove import prove, text_of
from common.validate.scenarios import planned
from common.validate.trials import Trial, chosen
from tests.strength.mutants.generated import format_of, stacks
from tests.strength.mutants.mutation import Mutant, apply

ARCH = 90
TIMEOUT = 30.0  # seconds for a launch that loops without waiting; a deadlock is detected at once
NOT_COMPILED, SAME_CODE, SURVIVED = "not compiled", "same code", "survived"
PLAIN, FULL, RACE = "plain", "full", "race"  # found by a plain validation, by a full one, by the race detector


@dataclass(frozen=True)
class Judged:
    """fate: one of those above. how: what found it."""

    mutant: Mutant
    fate: str
    how: str = ""

    @classmethod
    def lost(cls, mutant: Mutant, how: str) -> "Judged":
        """Fate of a mutant that ended or hung its process, on an unknown trial."""
        return cls(mutant, FULL, how)

    @property
    def title(self) -> str:
        return f"{self.mutant.kind}: {self.mutant.name}"

    def as_record(self) -> dict[str, str]:
        """The fields that a record keeps."""
        return {"operator": self.mutant.kind, "name": self.mutant.name, "fate": self.fate, "how": self.how}


def judge(mutant: Mutant, seed: int, cache: Path) -> Judged:
    """Prove the stacks with changed code on one trial after another, until one finds the mutant.

    The full validation's long trials come after the race detector.
    """
    torch.set_num_threads(1)
    every = [_Stack(names, mutant, seed, cache) for names in stacks(mutant.edits[0].file)]
    try:
        affected = [each for each in every if each.changed(chosen("plain")[0])] or every[:1]
    except CompileError as error:
        return Judged(mutant, NOT_COMPILED, error.cause)
    plain = (*chosen("plain"), _of_a_run(seed))
    full = [trial for trial in chosen("all") if not trial.plain]
    races, rest = ([trial for trial in full if trial.races == which] for which in (True, False))
    for fate, trials in ((PLAIN, plain), (RACE, races), (FULL, rest)):
        for each, trial in product(affected, trials):
            if how := each.found(trial):
                return Judged(mutant, fate, f"{trial.name}: {how}")
    return Judged(mutant, SURVIVED if any(each.differs for each in affected) else SAME_CODE)


class _Stack:
    """One stack with the mutant's edit. differs: whether its code was another one than the original's on some trial."""

    def __init__(self, names: tuple[str, ...], mutant: Mutant, seed: int, cache: Path) -> None:
        self._catalog = read_catalog()
        self._stack = choose_stacks(self._catalog, BASELINE, list(names), {}, 256)[0]
        self._edit = partial(apply, edit=mutant.edits[0], name=mutant.name)
        self._formats = model_named("tiny").in_formats(*read_formats(format_of(mutant.edits[0].file, names)))
        self._seed, self._cache = seed, cache
        self.differs = False

    def changed(self, trial: Trial) -> bool:
        """True if the compiled code differs from the original's. Raises CompileError."""
        source = text_of(self._catalog, self._stack, trial.like(self._formats))
        before, after = (_instructions(text, self._cache) for text in (source.text, self._edit(source.text)))
        return before != after

    def found(self, trial: Trial) -> str:
        """Evidence on `trial` that the kernel is wrong; '' without any."""
        device = PtxDevice(self._cache / "kernels", ARCH, self._seed, trial.races, TIMEOUT)
        try:
            if not self.changed(trial):
                return ""
            self.differs = True
            own = trial.like(self._formats)
            verdict = prove(device, self._catalog, self._stack, own, self._cache, self._seed, self._edit)
        except (CompileError, Hung, Crashed) as error:
            return error.cause
        return str(verdict.mismatch or "")


def _instructions(text: str, cache: Path) -> str:
    """The text's PTX without source lines: neither .loc nor .file, nor debug sections. Raises CompileError."""
    ptx = compile_ptx(text, f"sm_{ARCH}", cache_dir=cache / "kernels").split("\t.section")[0]
    return re.sub(r"^\s*\.(?:loc|file).*\n", "", ptx, flags=re.MULTILINE)


def _of_a_run(seed: int) -> Trial:
    """Check of a run beside trials: the model that it takes without a GPU, on its default grid."""
    model = model_named("tiny")
    starts = planned(model, torch.Generator().manual_seed(seed), quick=False)
    return Trial("tiny", "a user's model", model, 256, BLOCKS, tuple(starts), plain=True)

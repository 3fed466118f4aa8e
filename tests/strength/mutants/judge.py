"""Fate of a mutant: no code of its own, found by a validation, or not found.

A mutant that compiles to the original's PTX for a trial is not run there: it cannot differ ("trivial compiler
equivalence", Papadakis et al. 2015).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from common.compile.nvrtc import compile_ptx
from common.config.resolve import model_named
from common.devices.ptx.device import BLOCKS, PtxDevice
from common.errors import CompileError, Crashed, Hung, LabError
from common.model.format import read_formats
from common.model.shapes import Model
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.prove import prove, text_of
from common.validate.scenarios import planned
from common.validate.trials import TRIALS, Trial, chosen
from common.validate.values import ORDINARY
from tests.strength.kept import each_apart
from tests.strength.mutants.generated import AREA, format_of, stacks
from tests.strength.mutants.mutation import Mutant, edited, stack_of

ARCH = 90
TIMEOUT = 30.0  # seconds for a launch that loops without waiting; a deadlock is detected at once
LONGEST_S = 900.0  # for one mutant, which takes seconds: a kernel that overwrites the runtime's memory may never end
NOT_COMPILED, SAME_CODE, SURVIVED = "not compiled", "same code", "survived"
PLAIN, FULL, RACE = "plain", "full", "race"  # found by a plain validation, by a full one, by the race detector
FOUND = (PLAIN, FULL, RACE)
# Grids of a fault by hand: number of blocks, and whether with the short list of scenarios. With fewer blocks than
# heads, a block loops over heads. With many blocks, each has few rows, and the token comes from the last block in one
# step of three: the long list on two such grids has dozens of steps.
GRIDS = (*((8, True), (3, True), (1, True), (24, True)), *((8, False), (3, False), (1, False), (32, False)))
RACES = [trial for trial in TRIALS if trial.races]
TRIAL_SEEDS = 20  # with all of which a trial must find a fault that names it

Round = tuple[str, list[tuple[Trial, int]]]  # a fate, and the trials with their seeds that decide it


@dataclass(frozen=True)
class Judged:
    """fate: one of those above. how: what found it."""

    mutant: Mutant
    fate: str
    how: str = ""

    @property
    def found(self) -> bool:
        return self.fate in FOUND

    @property
    def title(self) -> str:
        return f"{self.mutant.kind}: {self.mutant.name}"

    def as_record(self) -> dict[str, str]:
        """The fields that a record keeps."""
        return {"class": self.mutant.kind, "name": self.mutant.name, "fate": self.fate, "how": self.how}


def judge_each(mutants: Sequence[Mutant], seed: int, cache: Path, processes: int) -> Iterator[Judged]:
    """Fates as they end, each from a process of its own: a kernel that ends it, or never ends, costs only its own.

    Raises what the judge raises, with the mutant's name.
    """
    for mutant, found in each_apart(partial(_named, seed=seed, cache=cache), mutants, processes, LONGEST_S, __name__):
        if isinstance(found, LabError) and not isinstance(found, Hung | Crashed):
            raise found
        yield found if isinstance(found, Judged) else Judged(mutant, FULL, str(found))


def _named(mutant: Mutant, seed: int, cache: Path) -> Judged:
    try:
        return judge(mutant, seed, cache)
    except LabError as error:  # not the end of its process: LabError, whatever the subclass
        raise LabError(f"mutant {mutant.name}: {error.cause}", error.remedy) from error


def judge(mutant: Mutant, seed: int, cache: Path) -> Judged:
    """Prove the stacks with changed code on one trial after another, until one finds the mutant."""
    torch.set_num_threads(1)
    every = grounds(mutant, cache)
    rounds = list(_rounds(mutant, seed))
    affected = _Affected(every, rounds[0][1][0][0])
    try:
        if mutant.trial:
            return Judged(mutant, *_with_every_seed(next(iter(affected)), rounds[0][1]))
        for fate, trials in rounds:
            for each in affected:
                for trial, seed_ in trials:
                    if how := each.found(trial, seed_):
                        return Judged(mutant, fate, f"{trial.name}: {how}")
    except CompileError as error:
        return Judged(mutant, NOT_COMPILED, error.cause)
    return Judged(mutant, SURVIVED if any(each.differs for each in affected) else SAME_CODE)


class _Affected:
    """Grounds of `every` whose code the mutant changes on `trial`; the first of them, where it changes none.

    Asked one after another, as far as a judge comes. Raises CompileError.
    """

    def __init__(self, every: Sequence["Ground"], trial: Trial) -> None:
        self._known, self._left, self._trial = list["Ground"](), list(every), trial

    def __iter__(self) -> "Iterator[Ground]":
        yield from self._known
        first = self._left[:1]
        while self._left:
            each = self._left.pop(0)
            if each.changed(self._trial):
                self._known.append(each)
                yield each
        if not self._known:
            self._known = first
            yield from first


def grounds(mutant: Mutant, cache: Path) -> "list[Ground]":
    """The stacks on which a mutant is judged, each with a model that has the traits and formats."""
    if mutant.area != AREA:
        return [Ground(stack_of(mutant), mutant.model, mutant, cache)]
    found, file = [], mutant.edits[0].file
    for names in stacks(file):
        model = model_named("tiny").in_formats(*read_formats(format_of(file, names)))
        (stack,) = choose_stacks(read_catalog(), BASELINE, list(names), {}, 256)
        found.append(Ground(stack, model, mutant, cache))
    return found


def _rounds(mutant: Mutant, seed: int) -> Iterator[Round]:
    """Trials in order: of an operator's mutant the full validation's long ones come after the race detector.

    Of a fault by hand its own grids and the plain trials, or the one trial that it names; what only the race detector
    finds has the trials of a full validation with it first.
    """
    plain = [*chosen("plain")]
    if mutant.trial:
        named = next((trial for trial in TRIALS if trial.name == mutant.trial), None)
        if named is None:
            raise LabError(f"it names a trial {mutant.trial!r}", "name one of common/validate/trials.py")
        yield FULL, [(named, each) for each in range(seed, seed + TRIAL_SEEDS)]
    elif mutant.area != AREA:
        if mutant.expect == "race":
            yield RACE, _with(seed, RACES)
        yield PLAIN, [*_grids(mutant, seed), *_with(seed, plain)]
    else:
        full = [trial for trial in chosen("all") if not trial.plain]
        yield PLAIN, _with(seed, [*plain, _of_a_run(seed)])
        yield RACE, _with(seed, RACES)
        yield FULL, _with(seed, [trial for trial in full if not trial.races])


def _with(seed: int, trials: Iterable[Trial]) -> list[tuple[Trial, int]]:
    return [(trial, seed) for trial in trials]


def _grids(mutant: Mutant, seed: int) -> Iterator[tuple[Trial, int]]:
    for number, (blocks, quick) in enumerate(GRIDS, seed):
        starts = planned(mutant.model, torch.Generator().manual_seed(number), quick)
        weights = "ties" if (number - seed) % 2 else ORDINARY
        yield Trial(f"{blocks} blocks", "", mutant.model, mutant.threads, blocks, tuple(starts), weights), number


def _of_a_run(seed: int) -> Trial:
    """Check of a run beside trials: the model that it takes without a GPU, on its default grid."""
    model = model_named("tiny")
    starts = planned(model, torch.Generator().manual_seed(seed), quick=False)
    return Trial("tiny", "a user's model", model, 256, BLOCKS, tuple(starts), plain=True)


class Ground:
    """One stack with the mutant's edits. differs: whether its code was another than the original's on some trial."""

    def __init__(self, stack: Stack, model: Model, mutant: Mutant, cache: Path) -> None:
        self._catalog, self._stack, self._model, self._cache = read_catalog(), stack, model, cache
        self._edit = partial(edited, mutant=mutant)
        self.differs = False

    def changed(self, trial: Trial) -> bool:
        """True if the compiled code differs from the original's. Raises CompileError."""
        source = text_of(self._catalog, self._stack, trial.like(self._model))
        before, after = (_instructions(text, self._cache) for text in (source.text, self._edit(source.text)))
        return before != after

    def found(self, trial: Trial, seed: int) -> str:
        """Evidence on `trial` that the kernel is wrong; '' without any."""
        device = PtxDevice(self._cache / "kernels", ARCH, seed, trial.races, TIMEOUT)
        try:
            if not self.changed(trial):
                return ""
            self.differs = True
            own = trial.like(self._model)
            verdict = prove(device, self._catalog, self._stack, own, self._cache, seed, self._edit)
        except (CompileError, Hung, Crashed) as error:
            return error.cause
        return str(verdict.mismatch or "")


def _with_every_seed(ground: Ground, trials: list[tuple[Trial, int]]) -> tuple[str, str]:
    """Fate and evidence of a fault that its trial must find whatever the seed."""
    found = [how for trial, seed in trials if (how := ground.found(trial, seed))]
    if len(found) == len(trials):
        return FULL, found[0]
    return SURVIVED, f"found with {len(found)} seeds of {len(trials)}"


def _instructions(text: str, cache: Path) -> str:
    """The text's PTX without source lines: neither .loc nor .file, nor debug sections. Raises CompileError."""
    ptx = compile_ptx(text, f"compute_{ARCH}", cache_dir=cache / "kernels").split("\t.section")[0]
    return re.sub(r"^\s*\.(?:loc|file).*\n", "", ptx, flags=re.MULTILINE)

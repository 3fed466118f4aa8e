"""Every stack on the PTX device with its race detector, on several models, grids and targets.

    python -m tests.strength.ptx [sm_86 ...]   all targets without an argument

Passed cases are kept by the kernel's text and the code that judges it: a run after a stop, or after a change of some
kernels, tries the others. Exit code: 0 every stack passed, 1 one did not.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import torch

from common import ROOT
from common.config.resolve import model_named
from common.devices.ptx.device import PtxDevice
from common.errors import LabError, known
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks, equals_parent
from common.validate.prove import prove, text_of
from common.validate.scenarios import Start
from common.validate.trials import GIVEN, LOW, Trial
from experiments.tables.progress import progress
from tests.strength.command import command
from tests.strength.kept import Kept, digest, each_apart, of_code

ALL, OTHERS = ("sm_90", "sm_86"), ("sm_80", "sm_89", "sm_100", "sm_120")  # targets of every stack, and of SOME
SOME = ("baseline", "persistent", "streaming")
TIMEOUT = 3600.0  # seconds of a launch on a busy machine: a deadlock is proved without it
TINY = model_named("tiny")
HEAD = replace(TINY, name="a head of 128", head_dim=128)
# LOW: the lower ends of knobs, with which a ring has two slots, each used again and again.
USUAL = Trial("tiny", "knobs as given", TINY, 256, 8, (Start(33, 2), Start(0)), knobs=GIVEN, races=True)
RING = replace(USUAL, covers="least knobs", knobs=LOW)
ODD = replace(RING, name="odd", model=model_named("odd"))
TRIALS = (
    USUAL,
    RING,
    ODD,
    replace(RING, name=HEAD.name, model=HEAD),
    *(replace(RING, name=name, model=model_named(name)) for name in ("llama_tiny", "qwen2_tiny")),
    *(replace(RING, name=f"tiny, cache in {kv}", model=TINY.in_formats(kv=kv)) for kv in ("int8", "fp8")),
    replace(RING, threads=64, blocks=33),
    replace(RING, threads=32, blocks=132),
)


@dataclass(frozen=True)
class Case:
    """One stack for one target on one trial."""

    stack: Stack
    arch: int
    trial: Trial

    def __str__(self) -> str:
        trial = self.trial
        return f"{self.stack.name} sm_{self.arch}, {trial.name}, {trial.covers}, {trial.blocks} x {trial.threads}"

    @property
    def key(self) -> str:
        """Digest of what its result depends on, but for the seed: cases of stacks without knobs may have the same."""
        catalog, parent = read_catalog(), replace(self.stack, variants=self.stack.parent)
        stacks = [self.stack, parent] if equals_parent(self.stack, catalog) else [self.stack]
        texts = [text_of(catalog, one, self.trial).text for one in stacks]
        return digest([*texts, str(self.arch), str(self.trial.blocks), repr(self.trial.starts), _judge()])

    def failure(self, seed: int, cache: Path) -> str:
        """Evidence that the kernel is wrong; "" without any."""
        torch.set_num_threads(1)
        device = PtxDevice(cache / "kernels", self.arch, seed, races=True, timeout=TIMEOUT)
        try:
            verdict = prove(device, read_catalog(), self.stack, self.trial, cache, seed)
        except LabError as error:
            return str(error)
        return str(verdict.mismatch or "")


def cases(archs: tuple[str, ...] = (*ALL, *OTHERS)) -> Iterator[Case]:
    """The matrix for the targets `archs`, without stacks that need a newer one."""
    catalog = read_catalog()
    for name in archs:
        arch = int(name.removeprefix("sm_"))
        for stack in choose_stacks(catalog, "catalog", None, {}, USUAL.threads):
            if name not in ALL and stack.name not in SOME:
                continue
            if max(catalog.variants[one].min_arch for one in ("baseline", *stack.variants)) <= arch:
                yield from (Case(stack, arch, trial) for trial in (TRIALS if name in ALL else (RING,)))


@cache
def _judge() -> str:
    return of_code("common")


def failures(tried: Sequence[Case], seed: int, folder: Path, kept: Kept) -> Iterator[str]:
    """A line for each case that fails, as they end; each runs in its own process, as many at a time as there are cores.

    Cases in `kept` are not tried again, and cases that pass are added to it.
    """
    left = list({key: case for case in tried if kept.get(key := case.key) is None}.values())
    preload = ("common.devices.ptx.device", "common.validate.prove")
    with progress(len(left)) as bar:
        failure = partial(Case.failure, seed=seed, cache=folder)
        for number, (case, found) in enumerate(each_apart(failure, left, os.cpu_count() or 1, TIMEOUT, *preload), 1):
            bar.begin(f"{number} of {len(left)}: {case}")
            if found:
                yield f"{case}: {found}"
            else:
                kept.put(case.key, "")


def run(archs: Sequence[str]) -> int:
    """Print a line for each case that fails, and how many passed. Raises LabError for an unknown target."""
    targets = tuple(known("target", arch, (*ALL, *OTHERS)) for arch in archs) or (*ALL, *OTHERS)
    seed, tried = int(torch.seed() % 2**31), list(cases(targets))
    folder = ROOT / ".lab-cache"
    print(f"{len(tried)} cases, seed {seed}", flush=True)
    kept, failed = Kept(folder / "matrix.jsonl"), 0
    for line in failures(tried, seed, folder, kept):
        failed += 1
        print(line, flush=True)
    passed = sum(kept.get(case.key) is not None for case in tried)
    print(f"{passed} of {len(tried)} PASSED")
    return int(failed > 0)


main = partial(command, run, __doc__)

if __name__ == "__main__":
    raise SystemExit(main())

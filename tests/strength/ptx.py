"""Every stack on the PTX device with its race detector, on several models, grids and targets.

    python -m tests.strength.ptx [sm_86 ...]   all targets without an argument; about an hour on one core

Exit code: 0 every stack passed, 1 one did not.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from common import ROOT
from common.config.resolve import model_named
from common.devices.ptx.device import PtxDevice
from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, choose_stacks
from common.validate.prove import prove
from common.validate.scenarios import Start
from common.validate.trials import GIVEN, LOW, Trial

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

    def failure(self, seed: int, cache: Path) -> str:
        """Evidence that the kernel is wrong; "" without any."""
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


def main() -> int:
    """Print a line for each case that fails, and how many passed."""
    torch.set_num_threads(1)
    seed, tried = int(torch.seed() % 2**31), list(cases(tuple(sys.argv[1:]) or (*ALL, *OTHERS)))
    print(f"{len(tried)} cases, seed {seed}")
    failed = 0
    for case in tried:
        if found := case.failure(seed, ROOT / ".lab-cache"):
            failed += 1
            print(f"{case}: {found}", flush=True)
    print(f"{len(tried) - failed} of {len(tried)} PASSED")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""Checks of one mutant: the validator on several grids, and the race detector for faults that only it finds.

Two weaker checks run for comparison: of the final token, and `assert_close` on the final logits.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.devices.ptx.device import PtxDevice
from common.devices.ptx.session import CompiledPtx
from common.errors import Crashed, Hung, LabError
from common.model.layout import Layout
from common.model.weights import load
from common.stacks.catalog import read_catalog
from common.validate.check import validate
from common.validate.prove import prove
from common.validate.reference import Reference
from common.validate.scenarios import Scenario, scenarios
from common.validate.snapshot import Snapshot
from common.validate.trials import TRIALS, Trial, chosen
from common.validate.values import weights_of
from tests.strength.mutants.mutation import Mutant, edited, source_of, stack_of

# Grids to validate on: number of blocks, and whether with the short list of scenarios. A mutant survives when it passes
# on all of them. With fewer blocks than heads, a block loops over heads. With many blocks, each has few rows, and the
# token comes from the last block in one step of three: the long list on two such grids has dozens of steps.
GRIDS = (
    *((8, True), (3, True), (1, True), (24, True)),
    *((8, False), (3, False), (1, False), (32, False)),
)
EQUIVALENT_GRIDS = 5  # for equivalent mutants, which should pass these and the trials
TRIAL_SEEDS = 20  # with which a trial must find a mutant that names it
TIMEOUT = 30.0  # seconds for a launch that loops without waiting; a deadlock is detected at once


@dataclass(frozen=True)
class MutantResult:
    """Result of the checks of one mutant.

    how     the first failure, empty if the mutant survived
    grids   number of grids until then
    token   whether the check of the final token found it
    logits  whether the check of the final logits found it
    seeds   with how many of TRIAL_SEEDS seeds its trial found it; None where it names none
    """

    mutant: Mutant
    how: str
    grids: int
    token: bool
    logits: bool
    seeds: int | None = None

    @classmethod
    def lost(cls, mutant: Mutant, how: str) -> "MutantResult":
        """Result of a mutant that ended or hung its process."""
        return cls(mutant, how, 1, True, True)

    @property
    def killed(self) -> bool:
        return bool(self.how) and self.seeds in (None, TRIAL_SEEDS)

    @property
    def as_expected(self) -> bool:
        return self.killed == (self.mutant.expect in ("killed", "race"))

    @property
    def title(self) -> str:
        return f"{self.mutant.kind}: {self.mutant.name}"

    def as_record(self) -> dict[str, Any]:
        """The fields that a record keeps, in JSON's types."""
        mutant = self.mutant
        about = {"class": mutant.kind, "name": mutant.name, "stack": list(mutant.stack), "expect": mutant.expect}
        return about | {name: getattr(self, name) for name in ("how", "grids", "token", "logits", "seeds")}


def check_mutant(mutant: Mutant, seed: int, cache: Path) -> MutantResult:
    """Compile one mutant, run the weak checks, then validate it on one grid after another until one fails."""
    torch.set_num_threads(1)
    model = mutant.model
    source, layout = source_of(mutant), Layout(model)
    plain = load("synthetic", model, None, cache / "weights", seed)[2].flat
    weights = (plain, weights_of("ties", plain, layout, seed))
    device = PtxDevice(cache / "kernels", seed=seed, timeout=TIMEOUT)
    program = device.compile(source)
    token, logits = _weak(device, program, layout, plain, seed)
    if mutant.trial:
        return replace(check_trial(mutant, seed, cache), token=token, logits=logits)
    how, tried = data_race(mutant, seed, cache) if mutant.expect == "race" else "", 0
    limit = EQUIVALENT_GRIDS if mutant.expect == "equivalent" else len(GRIDS)
    while not how and tried < limit:
        blocks, quick = GRIDS[tried]
        device.seed, flat = seed + tried, weights[tried % 2]
        tried += 1
        try:
            with closing(device.session(program, flat, blocks)) as session:
                starts = scenarios(model, device.seed, flat, quick, source.tokens_per_step)
                verdict = validate(session, flat, model, starts, device.seed)
                how = str(verdict.mismatch or "")
        except Hung as error:
            how = f"hung: {error.cause}"
        except Crashed as error:
            how = f"crashed: {error.cause}"
    if not how:
        how = _on_trials(mutant, chosen("plain"), device, cache, seed)
    return MutantResult(mutant, how, tried, token, logits)


def check_trial(mutant: Mutant, seed: int, cache: Path) -> MutantResult:
    """Try a mutant that names its trial there with TRIAL_SEEDS seeds, from `seed` on."""
    trials = [trial for trial in TRIALS if trial.name == mutant.trial]
    if not trials:
        raise LabError(f"mutant {mutant.name} names a trial {mutant.trial!r}", "name one of common/validate/trials.py")
    found = []
    for each in range(seed, seed + TRIAL_SEEDS):
        device = PtxDevice(cache / "kernels", seed=each, timeout=TIMEOUT)
        found.append(_on_trials(mutant, trials, device, cache, each))
    return MutantResult(mutant, next(filter(None, found), ""), 0, False, False, sum(map(bool, found)))


def _on_trials(mutant: Mutant, trials: Iterable[Trial], device: PtxDevice, cache: Path, seed: int) -> str:
    """The first failure on one of `trials`, or ''."""
    stack = stack_of(mutant)
    for trial in trials:
        try:
            own = trial.like(mutant.model)
            verdict = prove(device, read_catalog(), stack, own, cache, seed, partial(edited, mutant=mutant))
        except (Hung, Crashed) as error:
            return f"hung or crashed: {error.cause}"
        if verdict.mismatch:
            return str(verdict.mismatch)
    return ""


def data_race(mutant: Mutant, seed: int, cache: Path) -> str:
    """The finding of the race detector in one launch, or ''.

    It runs the last step of the cache, with most chunks of attention, and the one before if a launch has several.
    """
    source, layout = source_of(mutant), Layout(mutant.model)
    weights = load("synthetic", mutant.model, None, cache / "weights", seed)[2].flat
    steps = min(2, source.tokens_per_launch)
    device = PtxDevice(cache / "kernels", seed=seed, races=True, timeout=TIMEOUT)
    with closing(device.session(device.compile(source), weights, mutant.blocks)) as session:
        history = torch.zeros(layout.cache.stored, dtype=torch.bfloat16)
        position = layout.model.positions - steps * source.tokens_per_step
        session.reset([1] * layout.model.positions, position, history)
        try:
            session.run(steps)
        except Crashed as error:
            return error.cause
    return ""


def _weak(device: PtxDevice, program: CompiledPtx, layout: Layout, weights: Tensor, seed: int) -> tuple[bool, bool]:
    """Two flags after three steps from a random history: the final token is wrong; the final logits are."""
    start, token, logits = _ordinary(layout, weights, seed, program.source.tokens_per_step)
    end = start.position + start.steps
    try:
        with closing(device.session(program, weights, GRIDS[0][0])) as session:
            session.reset(start.ids, start.position, start.history, len(start.ids))
            for _ in range(start.steps):
                session.run(1)
                seen = Snapshot.of(session)
                position = int(seen.words("position"))
                if position >= end:
                    break
    except (Hung, Crashed):
        return True, True
    number = min(max(end - position + int(seen.words("accepted")), 0), seen.layout.tokens - 1)
    wrong = int(seen.words("ids")[end]) != token
    try:
        torch.testing.assert_close(seen.of_token(number).tap("lm_head"), logits)
    except AssertionError:
        return wrong, True
    return wrong, False


def _ordinary(layout: Layout, weights: Tensor, seed: int, tokens: int) -> tuple[Scenario, int, Tensor]:
    """Three steps after a random history, with the reference's last token and logits (fp32).

    Chosen so that fp32 runs of the reference agree with float64; else a correct kernel could fail by a cache rounding.
    """

    def follow(run: Reference, start: Scenario, history: Tensor) -> tuple[int, Tensor]:
        ids, pieces = list(start.ids), [history]
        for position in range(start.position, start.position + start.steps):
            taps = run.step(ids[position], position, pieces)
            pieces.append(taps.stored.unsqueeze(3))
            ids.append(taps.token)
        return taps.token, taps["lm_head", None].float()

    truth = Reference(layout.model, layout, weights)
    runs = [Reference(layout.model, layout, weights, torch.float32, pieces) for pieces in (1, 2, 3)]
    while True:
        start = next(s for s in scenarios(layout.model, seed, weights, True, tokens) if s.steps > 1)
        seed += 1
        if start.history is None:
            continue
        token, logits = follow(truth, start, start.history)
        if all(torch.allclose(follow(run, start, start.history)[1], logits, rtol=1.3e-6, atol=1e-5) for run in runs):
            return start, token, logits

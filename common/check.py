"""The validator: does this kernel compute what the reference computes, at every stage, and touch nothing else?"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from common.expected import Expected, Tap
from common.model import Model
from common.reference import Taps
from common.scenarios import Scenario
from common.snapshot import Snapshot, differences, same
from common.verdict import Mismatch, Verdict, Worst

if TYPE_CHECKING:
    from common.devices import Session


def validate(
    session: "Session",
    weights: Tensor,
    model: Model,
    scenarios: Iterable[Scenario],
    seed: int,
    untapped: frozenset[str] = frozenset(),
    expected: Expected | None = None,
) -> Verdict:
    """Run every scenario and stop at the first mismatch.

    Each is decoded step by step without a reset in between, and after each step every tap is compared with the
    float64 reference; then once more (bit-identical), and once with all steps queued in one call (bit-identical).
    weights: flat bf16, [layout.weights_size], what the session was given. seed: what the scenarios were made from.
    untapped: taps that this kernel by design does not leave. expected: of these weights, to share with other kernels.
    """
    judge = _Judge(session, expected or Expected(model, session.layout, weights), untapped)
    for scenario in scenarios:
        mismatch = next(judge.findings(scenario), None)
        if mismatch:
            note = ", ".join(filter(None, (mismatch.note, f"scenario: {scenario.name}")))
            return Verdict(replace(mismatch, note=note), judge.worst, judge.steps, seed)
    return Verdict(None, judge.worst, judge.steps, seed)


def compare_bits(
    session: "Session", parent: "Session", scenarios: Iterable[Scenario], untapped: frozenset[str] = frozenset()
) -> Mismatch | None:
    """The first bit in which a kernel differs from its parent in taps, cache, ids, token or position; None if none."""
    for scenario in scenarios:
        for each in (session, parent):
            _reset(each, scenario)
        for step in range(scenario.steps):
            session.run(1)
            parent.run(1)
            note = f"differs from its parent, step {step}, scenario: {scenario.name}"
            found = next(differences(Snapshot.of(session), Snapshot.of(parent), untapped, note), None)
            if found:
                return found
    return None


class _Judge:
    """One kernel before the bench: finds mismatches in order, and remembers the worst error so far."""

    def __init__(self, session: "Session", expected: Expected, untapped: frozenset[str]) -> None:
        self.session, self.layout, self.untapped, self.expected = session, session.layout, untapped, expected
        self.worst, self.steps = Worst("embed", None, 0.0, 0.0), 0

    def findings(self, scenario: Scenario) -> Iterator[Mismatch]:
        session = self.session
        _reset(session, scenario)
        start = Snapshot.of(session)
        yield from _fresh(start, scenario)

        cache = start.cache
        ids = [*scenario.ids, *[-1] * (self.layout.model.positions + 1 - len(scenario.ids))]
        first = []
        for step in range(scenario.steps):
            session.run(1)
            seen = Snapshot.of(session)
            for found in self._step(seen, ids, scenario.position + step, len(scenario.ids), cache):
                yield replace(found, note=", ".join(filter(None, (found.note, f"step {step}"))))
            first.append(seen if step + 1 == scenario.steps else replace(seen, cache=None))

        _reset(session, scenario)
        for step, want in enumerate(first):
            session.run(1)
            note = f"differs between runs, step {step}"
            yield from differences(Snapshot.of(session), want, self.untapped, note)
        if scenario.steps > 1:
            _reset(session, scenario)
            session.run(scenario.steps)
            note = "differs when its steps are queued"
            yield from differences(Snapshot.of(session), first[-1], self.untapped, note)

    def _step(self, seen: Snapshot, ids: list[int], position: int, given: int, cache: Tensor) -> Iterator[Mismatch]:
        """Compare one step; `cache` and `ids` are as before it, and are brought up to date."""
        stored = seen.cache[:, :, :, position].clone()
        truth, allowed = self.expected.step(ids[position], position, cache, stored)
        self.steps += 1
        for tap, want in truth.values.items():
            stage, layer = tap
            if stage in ("key", "value"):
                got = stored[layer, int(stage == "value")].double()
                yield from self._near(tap, got, want, rounding_error(got, want), allowed[tap])
            elif stage not in self.untapped:
                got = seen.tap(*tap).double()
                yield from self._near(tap, got, want, (got - want).abs(), allowed[tap])

        token = int(seen.words("token"))
        yield from self._token(token, seen, truth, allowed["lm_head", None])

        cache[:, :, :, position] = stored
        yield from same("cache", None, seen.cache, cache, "a position that this step must not touch")
        if position + 1 >= given:
            ids[position + 1] = token
        for name, want in (("position", [position + 1]), ("prompt_length", [given]), ("ids", ids)):
            yield from same("state", None, seen.words(name), torch.tensor(want, dtype=torch.int32), name)

    def _near(self, tap: Tap, got: Tensor, want: Tensor, error: Tensor, allowed: float) -> Iterator[Mismatch]:
        wrong = ~(error <= allowed)  # also where the error is NaN
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            yield Mismatch(*tap, index, float(got[index]), float(want[index]), allowed)
        largest = float(error.max())
        ratio = largest / allowed if allowed else inf if largest else 0.0
        if ratio > self.worst.ratio:
            self.worst = Worst(*tap, largest, ratio)

    def _token(self, token: int, seen: Snapshot, truth: Taps, allowed: float) -> Iterator[Mismatch]:
        """Argmax is exact: the lowest id of the kernel's own largest logit. Without that tap, of the reference's."""
        if "lm_head" not in self.untapped:
            want = int(seen.tap("lm_head").argmax())
            right = token == want
        else:
            logits, want = truth["lm_head", None], truth.token
            right = 0 <= token < len(logits) and bool(logits[token] >= logits[want] - 2 * allowed)
        if not right:
            yield Mismatch("argmax", None, (), token, want, 0.0, "the lowest id of the largest logit")


def rounding_error(got: Tensor, want: Tensor) -> Tensor:
    """How far `want` is from the nearest real number that rounds to the bf16 number `got`; 0 for a legal rounding.

    got, want: float64 of one shape, `got` holding bf16 numbers. NaN where `got` is not finite.
    """
    short = got.bfloat16()
    low, high = ((got + torch.nextafter(short, torch.full_like(short, end)).double()) / 2 for end in (-inf, inf))
    return torch.where(got.isfinite(), torch.maximum(low - want, want - high).clamp(min=0), torch.nan)


def _reset(session: "Session", scenario: Scenario) -> None:
    session.reset(scenario.ids, scenario.position, scenario.history, forced=len(scenario.ids))


def _fresh(start: Snapshot, scenario: Scenario) -> Iterator[Mismatch]:
    """A reset that leaves old results behind would hide a stage that does nothing."""
    for stage, part in (("scratch", start.scratch), ("cache", start.cache[:, :, :, scenario.position :])):
        known = (~part.isnan()).nonzero()
        if len(known):
            index = tuple(known[0].tolist())
            yield Mismatch("reset", None, index, float(part[index]), torch.nan, 0.0, f"{stage} is not poisoned")
    if scenario.history is not None:
        history = scenario.history[:, :, :, : scenario.position]
        yield from same("reset", None, start.cache[:, :, :, : scenario.position], history, "history as given")

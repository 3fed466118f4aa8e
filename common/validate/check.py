"""Validation of a kernel: every stage of every step against the float64 reference, and all memory it must not touch."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from math import inf

from torch import Tensor

from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.unwritten import NUMBER
from common.validate.drafts import accepted, looked_up, lookup_difference
from common.validate.reference import Past, Taps
from common.validate.rounding import half_way, rounding_error, row_error, wrong_ties
from common.validate.scenarios import Scenario
from common.validate.snapshot import (
    Snapshot,
    bit_differences,
    cache_difference,
    first_wrong,
    left_by_reset,
    padding,
    sent_too_early,
    state_difference,
    tensor_difference,
)
from common.validate.tolerances import ReferenceSteps, check_tolerance
from common.validate.verdict import Mismatch, Tap, Verdict, Worst


def validate(
    session: Session,
    weights: Tensor,
    scenarios: Iterable[Scenario],
    seed: int,
    reference: ReferenceSteps | None = None,
    on_step: Callable[[int, str], None] = lambda done, scenario: None,
    parent: Session | None = None,
    shown: Collection[str] | None = None,
) -> Verdict:
    """Run every scenario and stop at the first mismatch.

    A scenario is decoded three times. First step by step, without a reset between steps; after each step every tap is
    compared with the float64 reference. Then step by step again, each from a reset that leaves a number where the first
    run had NaN: that must give the same bits, for no launch may read unwritten memory, or an earlier launch's data
    outside cache and state. Then with all steps queued in one call, which must give the same bits too. With a
    `parent` its steps must also give them.

    weights: flat bf16, [layout.weights_size], the weights of the session. seed: the seed of the scenarios, for the
    report. reference: steps of the same weights, shared between kernels to save time; None makes new ones.
    on_step: called after each comparison with the number of compared steps and the scenario's name.
    shown: stages whose results the session leaves in its scratch, None for all; the cache is compared in any case.
    Raises Refused if the weights make a tolerance too wide to detect an error.
    """
    reference = reference or ReferenceSteps(session.layout, weights)
    checker = _KernelChecker(session, reference, on_step, parent, shown)
    for scenario in scenarios:
        mismatch = next(checker.mismatches(scenario.on(session)), None)
        if mismatch:
            return Verdict(mismatch.noted(f"scenario: {scenario.name}"), checker.worst, checker.steps, seed)
    return Verdict(None, checker.worst, checker.steps, seed)


def validate_queued(
    session: Session, scenario: Scenario, compared: Iterable[int], reference: ReferenceSteps
) -> tuple[Snapshot, Mismatch | None]:
    """Decode a scenario with all its steps queued, as a timed run does. Returns the buffers, and the mismatches there.

    compared: steps to compare with the reference: each one's stored entries and chosen token, and every tap of the
    scenario's last step. Memory that no step may touch is compared in any case.
    """
    scenario = scenario.on(session)
    _reset(session, scenario)
    start = Snapshot.of(session)
    session.run(scenario.steps)
    seen = Snapshot.at(session)
    checker = _KernelChecker(session, reference)
    found = next(checker.left_by_queued(scenario, start, seen, compared), None)
    return replace(seen, cache=start.cache), found  # equal to the session's own, unless there is a mismatch


class _KernelChecker:
    """Validation state of one kernel: the steps compared so far and the tap nearest to its tolerance."""

    def __init__(
        self,
        session: Session,
        reference: ReferenceSteps,
        on_step: Callable[[int, str], None] = lambda done, scenario: None,
        parent: Session | None = None,
        shown: Collection[str] | None = None,
    ) -> None:
        self.on_step, self.parent, self.shown = on_step, parent, shown
        self.session, self.layout, self.reference = session, session.layout, reference
        self.padding = padding(session.layout)
        self.worst, self.steps = Worst("embed", None, 0.0, 0.0), 0

    def mismatches(self, scenario: Scenario) -> Iterator[Mismatch]:
        """Decode one scenario three times and yield the mismatches in the order of execution."""
        session = self.session
        _reset(session, scenario)
        start = Snapshot.of(session)
        cache = start.cache  # expected content of the session's own, after each step
        assert cache is not None
        yield from left_by_reset(start, scenario)

        ids = [*scenario.ids, *[-1] * (self.layout.model.positions + 1 - len(scenario.ids))]
        past, before, first_run = scenario.past(self.reference.device), [], []
        for step in range(scenario.steps):
            before.append((past.positions, list(ids)))
            session.run(1)
            seen = Snapshot.at(session)
            found = chain(self._check_step(seen, past, cache, ids, scenario), self._check_padding(seen, start))
            for mismatch in found:
                yield mismatch.noted(f"step {step}")
            for entry in session.cache.entries(past.positions, int(seen.words("position"))).split(1, dim=-2):
                past = past.then(entry)
            first_run.append(replace(seen, cache=None))

        tokens, given = self.layout.tokens, len(scenario.ids)
        first_run[-1] = last = replace(first_run[-1], cache=cache)
        for step, ((position, known), want) in enumerate(zip(before, first_run, strict=True)):
            session.reset(known[: max(given, position + tokens)], position, cache, given, scenario.barriers, NUMBER)
            session.run(1)
            note = f"differs between runs, step {step}"
            yield from bit_differences(Snapshot.at(session), want, note, position + tokens)
        if scenario.steps > 1:
            _reset(session, scenario)
            session.run(scenario.steps)
            note = "differs when its steps are queued"
            yield from bit_differences(Snapshot.at(session), last, note)
        if tokens > 1:
            yield from chain(self._check_drafts(ids, scenario), lookup_difference(session, scenario))
            yield from self._check_padding(Snapshot.at(session), start)
        if self.parent:
            _reset(self.parent, scenario)
            for step, got in enumerate(first_run):
                self.parent.run(1)
                note = f"differs from its parent, as why_not_bit_equal would allow, step {step}"
                yield from bit_differences(got, Snapshot.at(self.parent), note)

    def _check_drafts(self, chosen: list[int], scenario: Scenario) -> Iterator[Mismatch]:
        """Decode the first step of a scenario once more, with `chosen`, ids by position, as drafts."""
        given, session, ids = len(scenario.ids), self.session, list(chosen)
        known = ids[: max(given, scenario.position + self.layout.tokens)]
        session.reset(known, scenario.position, scenario.held, given, scenario.barriers)
        ids[len(known) :] = [-1] * (len(ids) - len(known))
        start = Snapshot.of(session)
        assert start.cache is not None
        session.run(1)
        past = scenario.past(self.reference.device)
        for mismatch in self._check_step(Snapshot.at(session), past, start.cache, ids, scenario):
            yield mismatch.noted("with drafts")

    def _check_step(
        self, seen: Snapshot, past: Past, cache: KvCache, ids: list[int], scenario: Scenario
    ) -> Iterator[Mismatch]:
        """Compare one step with the reference, token by token.

        seen: the buffers after the step. past: all entries before those that it stored. cache, ids: contents of the
        buffers before the step; this function then adds the step's own.
        """
        first, given, tokens = past.positions, len(scenario.ids), self.layout.tokens
        entries, compared = self.session.cache.entries(first, first + tokens), []
        for number, entry in enumerate(entries.split(1, dim=-2)):
            own, stored = seen.of_token(number), entry.squeeze(-2)
            reference, allowed = self.reference.step(max(ids[first + number], 0), past, stored)
            self.steps += 1
            self.on_step(self.steps, scenario.name)
            yield from self._check_taps(own, stored, reference, allowed, scenario)
            compared.append((own, reference, allowed["lm_head", None]))
            past = past.then(entry)
        drafts = accepted([int(own.tap("lm_head").argmax()) for own, *_ in compared], ids, first, given)
        token = int(seen.words("token"))
        yield from self._check_token(token, *compared[drafts])

        cache.store(first, entries)
        yield from cache_difference(self.session.cache, cache, "a position that this step must not touch")
        last = first + drafts + 1
        if last >= given:
            ids[last] = token
        known = max(last + 1, given)
        ids[known : last + tokens] = looked_up(ids[:known], min(last + tokens, len(ids)) - known)
        state = {"position": [last], "prompt_length": [given], "accepted": [drafts], "ids": ids}
        yield from chain(state_difference(seen, state), sent_too_early(seen))

    def _check_padding(self, seen: Snapshot, start: Snapshot) -> Iterator[Mismatch]:
        """Yield changes of the padding between the slots of scratch and of the state, and of the sampler's slots."""
        note = "between two slots, or in a sampler's, where nothing may be written"
        for name, between in zip(("scratch", "state"), self.padding, strict=True):
            got, want = (getattr(each, name).where(between, 0) for each in (seen, start))
            yield from tensor_difference(name, None, got, want, note)

    def left_by_queued(
        self, scenario: Scenario, start: Snapshot, seen: Snapshot, compared: Iterable[int]
    ) -> Iterator[Mismatch]:
        """Yield the mismatches in the buffers after all steps of a scenario, queued. See `validate_queued`.

        start: the buffers before; its cache gets the entries of these steps.
        """
        assert seen.cache is not None and start.cache is not None  # noqa: PT018  for the types
        first, given, tokens = scenario.position, len(scenario.ids), self.layout.tokens
        ids, vocab = seen.words("ids").tolist(), self.layout.model.vocab
        # How far they came depends on the drafts.
        end = min(max(int(seen.words("position")), first + scenario.steps), first + scenario.steps * tokens)
        drafts = min(max(int(seen.words("accepted")), 0), tokens - 1, end - first - 1)
        known = max(given, end + 1)
        chosen = [token if 0 <= token < vocab else -1 for token in ids[given : end + 1]]
        behind = looked_up([*scenario.ids, *chosen], min(end + tokens, len(ids)) - known)
        expected = [*scenario.ids, *chosen, *behind, *[-1] * (len(ids) - known - len(behind))]
        state = {"position": [end], "prompt_length": [given], "accepted": [drafts], "ids": expected}
        state["token"] = ids[end : end + 1]
        yield from chain(state_difference(seen, state), sent_too_early(seen))
        entries, history = seen.cache.entries(first, end - 1 - drafts + tokens), scenario.past(self.reference.device)
        start.cache.store(first, entries)
        note = "a position that these steps must not touch"
        yield from chain(cache_difference(seen.cache, start.cache, note), self._check_padding(seen, start))
        for step in sorted({*compared, end - first - 1}):
            position, past = first + step, history.then(entries[..., :step, :]) if step else history
            stored, left = entries[..., step, :], seen.of_token(drafts) if position + 1 == end else None
            reference, allowed = self.reference.step(ids[position], past, stored)
            yield from self._check_taps(left, stored, reference, allowed, scenario)
            if position + 1 >= given:
                yield from self._check_token(ids[position + 1], left, reference, allowed["lm_head", None])

    def _check_taps(
        self, seen: Snapshot | None, stored: Tensor, reference: Taps, allowed: dict[Tap, float], scenario: Scenario
    ) -> Iterator[Mismatch]:
        """Compare the results of a step. seen: None if only its `stored` entries are left."""
        for tap, want in reference.values.items():
            stage, layer = tap
            # In tap order: a wrong stored entry must be reported as the kernel's mismatch by an earlier tap, before it
            # causes NaN or overflow in this tap of the reference and makes the tolerance too wide.
            check_tolerance(tap, allowed[tap], want, scenario.near_ties)
            if stage in ("key", "value"):
                rows, form = stored[layer, int(stage == "value")], self.layout.cache.format
                got = form.decode(rows, want.shape[-1]).double()
                error = row_error(form, rows, want) if form.scaled else rounding_error(got, want)
                yield from self._check_tap(tap, got, want, error, allowed[tap])
                wrong = (
                    wrong_ties(form, rows, want) if form.scaled else half_way(want) & (got != want.bfloat16().double())
                )
                # Only constructed values are exactly half way in float64; then fp32 is exact, too.
                yield from first_wrong(tap, wrong, got, want, note="half way, rounds to even")
            elif seen and (self.shown is None or stage in self.shown):
                got = seen.tap(*tap).double()
                yield from self._check_tap(tap, got, want, (got - want).abs(), allowed[tap])

    def _check_tap(self, tap: Tap, got: Tensor, want: Tensor, error: Tensor, allowed: float) -> Iterator[Mismatch]:
        """Yield the first element with an error above `allowed`. got, want, error: float64 of the tap's shape."""
        yield from first_wrong(tap, ~(error <= allowed), got, want, allowed)  # also where the error is NaN
        largest = float(error.max())
        ratio = largest / allowed if allowed else inf if largest else 0.0
        if ratio > self.worst.ratio:
            self.worst = Worst(*tap, largest, ratio)

    def _check_token(self, token: int, seen: Snapshot | None, reference: Taps, allowed: float) -> Iterator[Mismatch]:
        """Argmax is exact: the token must be the lowest id of the kernel's own largest logit.

        seen: None if these logits are gone; then a token passes if its reference logit is within twice the tolerance
        of the largest.
        """
        if seen:
            want = int(seen.tap("lm_head").argmax())
            right = token == want
        else:
            logits, want = reference["lm_head", None], reference.token
            right = 0 <= token < len(logits) and bool(logits[token] >= logits[want] - 2 * allowed)
        if not right:
            yield Mismatch("argmax", None, (), token, want, 0.0, "the lowest id of the largest logit")


def _reset(session: Session, scenario: Scenario) -> None:
    session.reset(scenario.ids, scenario.position, scenario.held, len(scenario.ids), scenario.barriers)

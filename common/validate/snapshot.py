"""Contents of a session's buffers at one moment, and their comparison bit for bit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.model.layout import NOT_SENT, Layout
from common.model.stages import STAGES
from common.validate.scenarios import Scenario
from common.validate.verdict import Mismatch, Tap


@dataclass(frozen=True)
class Snapshot:
    """Copies of the buffers; `common.model.layout` defines their contents.

    scratch: float32, [layout.scratch_size], and state: int32, [layout.state_size], on the CPU. cache: in the device's
    memory, since it can be large; None if nothing compares it.
    """

    layout: Layout
    scratch: Tensor
    state: Tensor
    cache: KvCache | None

    @classmethod
    def of(cls, session: Session) -> "Snapshot":
        return replace(cls.at(session), cache=session.cache.copy())

    @classmethod
    def at(cls, session: Session) -> "Snapshot":
        """Snapshot with the session's own cache, to be compared before the next step changes it."""
        return cls(session.layout, session.scratch(), session.state(), session.cache)

    def of_token(self, number: int) -> "Snapshot":
        """The same with the scratch of one of a step's tokens."""
        size = self.layout.step_size
        return replace(self, scratch=self.scratch[number * size : (number + 1) * size])

    def tap(self, stage: str, layer: int | None = None) -> Tensor:
        """The result of `stage` for the first token: a float32 view with the shape of its slot."""
        slot = self.layout.tap(stage, layer)
        return slot.of(self.scratch)

    def words(self, name: str) -> Tensor:
        """State words by their name in the layout: an int32 view."""
        return self.layout.state[name].of(self.state)


def padding(layout: Layout) -> tuple[Tensor, Tensor]:
    """Padding between the slots, and the sampler's slots: bool masks over scratch and over the state words."""
    scratch, state = torch.ones(layout.step_size, dtype=torch.bool), torch.ones(layout.state_size, dtype=torch.bool)
    others = [slot for name, slot in layout.global_scratch.items() if name not in (*STAGES, "seen")]
    for slot in (*(layout.tap(*tap) for tap in layout.taps()), *others):
        scratch[slot.offset : slot.offset + slot.size] = False
    for name, slot in layout.state.items():
        state[slot.offset : slot.offset + slot.size] = name == "sampling"
    return scratch.repeat(layout.tokens), state


def first_wrong(
    tap: Tap, wrong: Tensor, got: Tensor, want: Tensor, tolerance: float = 0.0, note: str = ""
) -> Iterator[Mismatch]:
    """Yield the first element of a mask `wrong`, if any. got, want: of its shape; the rest: for the Mismatch."""
    if wrong.any():
        index = tuple(wrong.nonzero()[0].tolist())
        yield Mismatch(*tap, index, float(got[index]), float(want[index]), tolerance, note)


def tensor_difference(stage: str, layer: int | None, got: Tensor, want: Tensor, note: str) -> Iterator[Mismatch]:
    """Yield the first element with different bits, if any: NaN equals the same NaN, and -0 differs from 0.

    got, want: one shape and one dtype of 4 bytes. stage, layer, note: for the Mismatch.
    """
    yield from first_wrong((stage, layer), got.view(torch.int32) != want.view(torch.int32), got, want, note=note)


def cache_difference(got: KvCache, want: KvCache, note: str, end: int | None = None) -> Iterator[Mismatch]:
    """Yield the first element below position `end` with different bits, if any."""
    if found := got.difference(want, end):
        yield Mismatch("cache", None, *found, 0.0, note)


def left_by_reset(seen: Snapshot, scenario: Scenario) -> Iterator[Mismatch]:
    """Yield elements that are not NaN after a reset: an old result would hide a stage that does nothing."""
    assert seen.cache is not None
    scratch, note = seen.scratch, "scratch is not NaN after a reset"
    yield from first_wrong(("reset", None), ~scratch.isnan(), scratch, torch.full_like(scratch, torch.nan), note=note)
    if found := seen.cache.written(scenario.position):
        yield Mismatch("reset", None, *found, 0.0, "cache is not NaN after a reset")
    if scenario.held and (found := seen.cache.difference(scenario.held, scenario.position)):
        yield Mismatch("reset", None, *found, 0.0, "the history that the reset was given")


def sent_too_early(seen: Snapshot) -> Iterator[Mismatch]:
    """Yield the first flag-in-data word of the next turn that is not the sentinel, before that turn publishes it.

    A block that polls such a word may take the old value for the new one.
    """
    turn = int(seen.words("turn"))
    for name, slot in seen.layout.regions.items():
        for number in range(seen.layout.tokens):
            places = slot.of(seen.of_token(number).scratch)
            words = places[turn % len(places)].view(torch.int32)
            note = f"{name}, a word of the next turn that is not unwritten"
            yield from tensor_difference("scratch", None, words, torch.full_like(words, NOT_SENT), note)


def bit_differences(got: Snapshot, want: Snapshot, note: str, positions: int | None = None) -> Iterator[Mismatch]:
    """Yield the first differing element of each part: taps in stage order, the cache if both have it, the state words.

    positions: number of cache positions to compare; None for all.
    """
    for number in range(got.layout.tokens):
        one, other = got.of_token(number), want.of_token(number)
        for tap in got.layout.taps():
            yield from tensor_difference(*tap, one.tap(*tap), other.tap(*tap), note)
    if got.cache is not None and want.cache is not None:
        yield from cache_difference(got.cache, want.cache, note, positions)
    for name in ("position", "token", "accepted", "ids"):
        yield from tensor_difference("state", None, got.words(name), want.words(name), f"{name}: {note}")


def state_difference(seen: Snapshot, want: Mapping[str, Sequence[int]]) -> Iterator[Mismatch]:
    """Yield the first wrong word of each part of the state in `want`, in its order."""
    for name, words in want.items():
        yield from tensor_difference("state", None, seen.words(name), torch.tensor(words, dtype=torch.int32), name)

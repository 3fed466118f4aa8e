"""Copies of a session's buffers at one moment, and their comparison bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from common.model.layout import NOT_SENT, REGIONS, Layout
from common.model.stages import STAGES
from common.validate.verdict import Mismatch

if TYPE_CHECKING:
    from common.devices.protocol import Session


@dataclass(frozen=True)
class Snapshot:
    """Copies of the buffers on the CPU; `common.model.layout` defines their contents.

    scratch: float32, [layout.scratch_size]. state: int32, [layout.state_size]. cache: bf16, the layout's cache shape;
    None where it was dropped to save memory.
    """

    layout: Layout
    scratch: Tensor
    state: Tensor
    cache: Tensor | None

    @classmethod
    def of(cls, session: "Session") -> "Snapshot":
        return cls(session.layout, session.scratch(), session.state(), session.cache())

    def tap(self, stage: str, layer: int | None = None) -> Tensor:
        """The result of `stage`: a float32 view with the shape of its slot."""
        slot = self.layout.tap(stage, layer)
        return self.scratch[slot.offset : slot.offset + slot.size].view(slot.shape)

    def words(self, name: str) -> Tensor:
        """State words by their name in the layout: an int32 view."""
        slot = self.layout.state[name]
        return self.state[slot.offset : slot.offset + slot.size]


def padding(layout: Layout) -> tuple[Tensor, Tensor]:
    """What lies between the slots: bool masks over scratch and over the state words."""
    scratch, state = torch.ones(layout.scratch_size, dtype=torch.bool), torch.ones(layout.state_size, dtype=torch.bool)
    others = [slot for name, slot in layout.global_scratch.items() if name not in STAGES]
    for slot in (*(layout.tap(*tap) for tap in layout.taps()), *others):
        scratch[slot.offset : slot.offset + slot.size] = False
    for slot in layout.state.values():
        state[slot.offset : slot.offset + slot.size] = False
    return scratch, state


def tensor_difference(stage: str, layer: int | None, got: Tensor, want: Tensor, note: str) -> Iterator[Mismatch]:
    """Yield the first element whose bits differ, if any: NaN equals the same NaN, and -0 differs from 0.

    got, want: one shape and one dtype of 2 or 4 bytes. stage, layer, note: what the Mismatch names.
    """
    bits = {2: torch.int16, 4: torch.int32}[got.element_size()]
    if not torch.equal(got.view(bits), want.view(bits)):
        index = tuple((got.view(bits) != want.view(bits)).nonzero()[0].tolist())
        yield Mismatch(stage, layer, index, float(got[index]), float(want[index]), 0.0, note)


def sent_too_early(seen: Snapshot) -> Iterator[Mismatch]:
    """Yield the first word that travels by value and is there before the next turn, the one that publishes it.

    Whoever polls such a word takes an old value for the new one, if its timing allows.
    """
    turn = int(seen.words("turn"))
    for name in ("mail", *REGIONS):
        slot = seen.layout.global_scratch[name]
        places = seen.scratch[slot.offset : slot.offset + slot.size].view(slot.shape)
        words = places[turn % len(places)].view(torch.int32)
        note = f"{name}, a word of the next turn that is not unwritten"
        yield from tensor_difference("scratch", None, words, torch.full_like(words, NOT_SENT), note)


def bit_differences(
    got: Snapshot, want: Snapshot, untapped: frozenset[str], note: str, positions: int | None = None
) -> Iterator[Mismatch]:
    """Yield the first differing bit of each part: taps in stage order, the cache if both have it, the state words.

    positions: how many of the cache are compared; None for all.
    """
    for tap in got.layout.taps():
        if tap[0] not in untapped:
            yield from tensor_difference(*tap, got.tap(*tap), want.tap(*tap), note)
    if got.cache is not None and want.cache is not None:
        first, second = (each[:, :, :, :positions] for each in (got.cache, want.cache))
        yield from tensor_difference("cache", None, first, second, note)
    for name in ("position", "token", "ids"):
        yield from tensor_difference("state", None, got.words(name), want.words(name), f"{name}: {note}")

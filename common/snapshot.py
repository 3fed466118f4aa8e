"""A session's buffers as they are at one moment, and how to compare them bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from common.layout import Layout
from common.model import LAYER_STAGES
from common.verdict import Mismatch

if TYPE_CHECKING:
    from common.devices import Session


@dataclass(frozen=True)
class Snapshot:
    """Copies of scratch, state and (it may be dropped to save memory) the cache; see `common.layout`."""

    layout: Layout
    scratch: Tensor
    state: Tensor
    cache: Tensor | None

    @classmethod
    def of(cls, session: "Session") -> "Snapshot":
        return cls(session.layout, session.scratch(), session.state(), session.cache())

    def tap(self, stage: str, layer: int | None = None) -> Tensor:
        """What `stage` left: float32, the shape of its slot."""
        slot = self.layout.tap(stage, layer)
        return self.scratch[slot.offset : slot.offset + slot.size].view(slot.shape)

    def words(self, name: str) -> Tensor:
        """State words by their name in the layout: int32."""
        slot = self.layout.state[name]
        return self.state[slot.offset : slot.offset + slot.size]


def same(stage: str, layer: int | None, got: Tensor, want: Tensor, note: str) -> Iterator[Mismatch]:
    """Yield the first difference in bits, so that NaN equals the same NaN and -0 differs from 0."""
    bits = {2: torch.int16, 4: torch.int32}[got.element_size()]
    if not torch.equal(got.view(bits), want.view(bits)):
        index = tuple((got.view(bits) != want.view(bits)).nonzero()[0].tolist())
        yield Mismatch(stage, layer, index, float(got[index]), float(want[index]), 0.0, note)


def differences(got: Snapshot, want: Snapshot, untapped: frozenset[str], note: str) -> Iterator[Mismatch]:
    """Yield what differs in bits, in stage order: taps, the cache if both have it, position, token and ids."""
    layers = ((stage, layer) for layer in range(got.layout.model.layers) for stage in LAYER_STAGES)
    for tap in (("embed", None), ("rope", None), *layers, ("final_norm", None), ("lm_head", None)):
        if tap[0] not in untapped:
            yield from same(*tap, got.tap(*tap), want.tap(*tap), note)
    if got.cache is not None and want.cache is not None:
        yield from same("cache", None, got.cache, want.cache, note)
    for name in ("position", "token", "ids"):
        yield from same("state", None, got.words(name), want.words(name), f"{name}: {note}")

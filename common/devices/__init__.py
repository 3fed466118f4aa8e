"""The two devices and the verbs they share: compile, session, reset, run, and reading the buffers back."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from common.counters import Counts
from common.layout import Layout
from common.source import Source


class Session(Protocol):
    """One compiled kernel with its buffers. Buffers live as long as the session; steps queue in order."""

    blocks: int
    layout: Layout

    def reset(self, ids: Sequence[int], position: int, cache: torch.Tensor | None = None, forced: int = 0) -> None:
        """Make `position` the next to decode.

        ids: token ids 0..len-1; ids[position] must be given. forced: how many of them are a prompt that argmax
        must not overwrite (at least position + 1 are kept). cache: bf16, the layout's cache shape; positions below
        `position` are taken, everything else starts as NaN, as do scratch and every id that is not given (-1).
        """

    def run(self, steps: int = 1) -> None:
        """Decode `steps` tokens without touching the device's state in between. Raises Hung or Crashed."""

    def scratch(self) -> torch.Tensor:
        """A copy of scratch: float32, [layout.scratch_size], on the CPU."""

    def cache(self) -> torch.Tensor:
        """A copy of the cache: bfloat16, the layout's cache shape, on the CPU."""

    def state(self) -> torch.Tensor:
        """A copy of the state words: int32, [layout.state_size], on the CPU."""

    def counts(self) -> Counts | None:
        """What the last `run` did, per stage, summed over its steps; None where the device cannot count."""

    def close(self) -> None:
        """Give the buffers back."""


class Device(Protocol):
    """Where kernels run."""

    name: str

    def describe(self) -> dict[str, Any]:
        """Hardware, driver and compiler, for records."""

    def compile(self, source: Source) -> Any:
        """A program ready to launch, cached by the source's sha. Raises CompileError."""

    def session(self, program: Any, layout: Layout, weights: torch.Tensor, blocks: int | None = None) -> Session:
        """weights: bf16, [layout.weights_size], as `common.weights` packs them. blocks: None for one per SM.

        Raises Refused when the grid cannot be co-resident.
        """

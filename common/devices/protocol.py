"""Protocols of a device (compile, session) and of a session (reset, run, contents of the buffers)."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from common.compile.source import Source
from common.devices.counters import Counts
from common.devices.kv_cache import KvCache
from common.devices.unwritten import NOT_WRITTEN
from common.errors import LabError
from common.model.layout import Layout


class Session(Protocol):
    """One compiled kernel with its buffers, which exist until `close`. Steps run in the order of the calls."""

    blocks: int
    layout: Layout
    cache: KvCache  # in the kernel's memory

    def reset(
        self,
        ids: Sequence[int],
        position: int,
        history: KvCache | torch.Tensor | None = None,
        forced: int = 0,
        barriers: int = 0,
        unwritten: float = NOT_WRITTEN,
    ) -> None:
        """Set all buffers so that the next step decodes `position`.

        ids: token ids of positions 0..len-1, at least position + 1 of them; all later ids become -1. forced: length of
        the prompt, which argmax must not overwrite; at least position + 1 count as prompt. history: entries below
        `position`, and perhaps more, from `cache.hold` or still on the CPU. The rest of the cache and all of scratch
        become `unwritten`, by default the NaNs of common.devices.unwritten.
        barriers: grid barriers passed before, an even number, to which the words of the barriers are set.
        """
        self.cache.reset(history, position, unwritten)
        self.resume(self.layout.initial_state(ids, position, forced, barriers), unwritten)

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        """As `reset`, but the cache keeps its entries. state: the state words, as layout.initial_state makes them."""

    def run(self, steps: int = 1, then: Any = None) -> None:
        """Decode `steps` tokens; the host does not access the buffers between them.

        then: a session `beside` this one; its kernel is launched once after each token.
        Raises Hung or Crashed; LabError if the cache has too few positions left.
        """

    def time(self, steps: int, repeats: int) -> list[float]:
        """Seconds per step of `repeats` runs of `steps` steps each, by the clock of the GPU.

        Every run starts with the buffers as the last `reset` left them, so that no kernel can tell a timed run from a
        first one: written data is put back, on the device. All runs are queued before the first begins; the call
        returns when the last one is done. Raises Hung or Crashed, and Refused where launches are synchronous.
        """
        raise LabError("this device has no clock", "use a GPU")

    def scratch(self) -> torch.Tensor:
        """A copy of scratch: float32, [layout.scratch_size], on the CPU."""

    def state(self) -> torch.Tensor:
        """A copy of the state words: int32, [layout.state_size], on the CPU."""

    def count(self, steps: int = 1) -> Counts | None:
        """As `run`; returns its counts per stage, summed over the steps. None on a GPU, which counts nothing."""
        return None

    def close(self) -> None:
        """Free the buffers; by default they go with the session."""
        return


class Device(Protocol):
    """A GPU or CPU that compiles and runs kernels."""

    name: str

    def describe(self) -> dict[str, Any]:
        """Hardware and compiler, for the record."""

    def compile(self, source: Source) -> Any:
        """A program ready to launch. Raises CompileError."""

    def session(self, program: Any, weights: torch.Tensor, blocks: int | None = None, beside: Any = None) -> Session:
        """Allocate the buffers of one kernel.

        program: from `compile`; its source has the layout. weights: bf16, [layout.weights_size], as
        `common.model.weights` packs them. blocks: of the grid; None means source.blocks_per_sm on each SM; the CPU
        counts as 8 SMs. beside: a session of this model with these weights; the new one shares its buffers, except a
        scratch that is too small, and they run in turn.
        Raises Refused when the grid cannot be co-resident.
        """

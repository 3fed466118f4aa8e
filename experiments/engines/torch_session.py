"""A step of torch as a session, which shows the judge its logits, the cache and the ids."""

from typing import Any

import numpy as np
import torch

from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.model.layout import Layout
from experiments.engines.torch_step import TorchStep

SHOWN = ("lm_head",)  # stages whose results it leaves in scratch


class TorchSession(Session):
    """`step`, over weights and a cache in bf16, in the buffers of a kernel; see common.devices.protocol.Session.

    The cache of `step` has no unwritten entries: a mask in torch multiplies what it hides by 0, which leaves a NaN. So
    the entries of a session are here, on the CPU, and the step gets those of earlier positions.
    """

    def __init__(self, step: TorchStep, layout: Layout) -> None:
        self._step, self.layout, self.blocks = step, layout, 1  # no meaning: torch chooses its grids
        self.cache = KvCache(np.empty(layout.cache.shape, np.int16))
        self._scratch, self._state = torch.empty(layout.scratch_size), layout.initial_state([0], 0, 1)

    def resume(self, state: torch.Tensor, unwritten: float = NOT_WRITTEN) -> None:
        fill_scratch(self._scratch, self.layout)  # always the same: what is not shown is never written
        self._state.copy_(state)

    def run(self, steps: int = 1, then: Any = None) -> None:
        step, layout = self._step, self.layout
        position, given, token, ids = (self._words(name) for name in ("position", "prompt_length", "token", "ids"))
        layout.check_room(int(position), steps)
        for at in range(int(position), int(position) + steps):
            step.cache[..., :at, :] = self.cache.entries(0, at)
            step.position.fill_(at)
            step.token.fill_(int(ids[at]))
            step.replay()
            self.cache.store(at, step.cache[..., at : at + 1, :].cpu())
            layout.tap("lm_head").of(self._scratch).copy_(step.logits[0])
            token.copy_(step.token)
            if at + 1 >= given:
                ids[at + 1] = int(token)
            position += 1

    def scratch(self) -> torch.Tensor:
        return self._scratch.clone()

    def state(self) -> torch.Tensor:
        return self._state.clone()

    def counts(self) -> None:
        return None

    def close(self) -> None:
        """Nothing: the buffers go with the session."""

    def _words(self, name: str) -> torch.Tensor:
        return self.layout.state[name].of(self._state)

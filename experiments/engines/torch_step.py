"""Greedy decoding by steps in plain torch, which a CUDA graph can replay; and a session of it for the judge."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.devices.unwritten import NOT_WRITTEN, fill_scratch
from common.model.layout import Layout
from experiments.run.torch_decoder import TorchDecoder

SHOWN = ("lm_head",)  # stages whose results a session leaves in scratch


class TorchStep(TorchDecoder):
    """Greedy decoding: `step` reads token and position from buffers and advances both.

    compiled: torch.compile makes one function of a layer, the same for all layers.
    """

    def __init__(
        self, layout: Layout, weights: Tensor, positions: int, dtype: torch.dtype, compiled: bool = False
    ) -> None:
        super().__init__(layout, weights, positions, dtype)
        self.token = torch.zeros(1, dtype=torch.long, device=weights.device)
        self.position = torch.zeros_like(self.token)
        self.logits = torch.empty(0)  # the last step's: [1, vocab], in a graph always the same memory
        self.replay: Callable[[], None] = self.step
        self._layer = self.layer
        if compiled:
            torch.compiler.reset()  # else the functions of earlier steps count towards the limit of variants
            mode = "max-autotune-no-cudagraphs" if weights.is_cuda else None  # `capture` makes the graph
            self._layer = torch.compile(self.layer, fullgraph=True, dynamic=False, mode=mode)  # whole, or an error

    @torch.no_grad()
    def step(self) -> None:
        """Decode the token at the position, then write the next token and position into the same buffers."""
        x, at = self.weight("embed")[self.token].to(self.dtype), self.place(self.position)
        for layer in range(self.model.layers):
            x = self._layer(x, self.cache[layer], self.layer_weights(layer), at)
        final_norm, head = (self.weight(name).to(self.dtype) for name in ("final_norm", "lm_head"))
        self.logits = linear(self.norm(x, final_norm), head)
        self.token.copy_(self.logits.argmax(-1))
        self.position += 1

    def feed(self, ids: Sequence[int]) -> None:
        """Read a whole prompt from position 0 on; `token` then holds the first new token."""
        self.read(ids[:-1], 0)
        self.token.fill_(ids[-1])
        self.position.fill_(len(ids) - 1)
        self.replay()

    def capture(self) -> None:
        """From now on `replay` is a CUDA graph of one step."""
        self.replay = captured(self.step)


def captured(step: Callable[[], None], before: int = 3) -> Callable[[], None]:
    """Replay of a CUDA graph of one step; in the steps before it libraries initialize and kernels are compiled."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(before):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


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

    def _words(self, name: str) -> torch.Tensor:
        return self.layout.state[name].of(self._state)

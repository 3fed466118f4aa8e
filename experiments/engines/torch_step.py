"""Greedy decoding by steps in plain torch, which a CUDA graph can replay: timed as a rival."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.model.layout import Layout
from common.model.shapes import Model
from experiments.run.torch_decoder import TorchDecoder


class TorchStep(TorchDecoder):
    """Greedy decoding: `step` reads token and position from buffers and advances both.

    compiled: torch.compile makes one function of a layer, the same for all layers.
    """

    def __init__(
        self,
        model: Model,
        layout: Layout,
        weights: Tensor,
        positions: int,
        dtype: torch.dtype,
        compiled: bool = False,
    ) -> None:
        super().__init__(model, layout, weights, positions, dtype)
        self.token = torch.zeros(1, dtype=torch.long, device=weights.device)
        self.position = torch.zeros_like(self.token)
        self.logits = torch.empty(0)  # the last step's: [1, vocab], in a graph always the same memory
        self.graph: torch.cuda.CUDAGraph | None = None
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
        """Capture `step` as a CUDA graph; from now on `replay` launches it."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries initialize outside of the capture
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph

    def replay(self) -> None:
        """Execute one step; after `capture`, by the CUDA graph."""
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()

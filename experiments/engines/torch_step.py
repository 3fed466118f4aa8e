"""Greedy decoding by steps in plain torch, which a CUDA graph can replay: timed as a rival."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.model.layout import Layout
from common.model.shapes import Model
from experiments.run.torch_decoder import TorchDecoder


class TorchStep(TorchDecoder):
    """Greedy decoding, in the dtype of the weights: `step` reads token and position from buffers and advances both."""

    def __init__(self, model: Model, layout: Layout, weights: Tensor, positions: int) -> None:
        super().__init__(model, layout, weights, positions, weights.dtype)
        self.token = torch.zeros(1, dtype=torch.long, device=weights.device)
        self.position = torch.zeros_like(self.token)
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self) -> None:
        """Decode the token at the position, then write the next token and position into the same buffers."""
        x, at = self.weight("embed")[self.token], self.place(self.position)
        for layer in range(self.model.layers):
            x = self.layer(x, layer, self.layer_weights(layer), at)
        logits = linear(self.norm(x, self.weight("final_norm")), self.weight("lm_head"))
        self.token.copy_(logits.argmax(-1))
        self.position += 1

    def feed(self, ids: Sequence[int]) -> None:
        """Reset the position and decode a whole prompt; `token` then holds the first new token."""
        self.position.zero_()
        for token in ids:
            self.token.fill_(token)
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

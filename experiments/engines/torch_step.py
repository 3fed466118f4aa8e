"""Decode step in plain torch with static buffers, so that a CUDA graph can replay it; timed, not a reference."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import rotate


class TorchStep:
    """Greedy decoding of one sequence: `step` reads the token and the position from its buffers and advances both.

    weights: flat, [layout.weights_size]; their dtype and device are those of the computation. positions: of the cache.
    """

    def __init__(self, model: Model, layout: Layout, weights: Tensor, positions: int) -> None:
        self.model, self.layout, self.weights = model, layout, weights
        cache = (model.layers, model.kv_heads, positions, model.head_dim)
        self.keys = torch.zeros(cache, dtype=weights.dtype, device=weights.device)
        self.values = torch.zeros_like(self.keys)
        self.token = torch.zeros(1, dtype=torch.long, device=weights.device)
        self.position = torch.zeros(1, dtype=torch.long, device=weights.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.everywhere = torch.arange(positions, device=weights.device)
        exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float64) / model.head_dim
        angles = torch.arange(positions)[:, None] * model.rope_theta**-exponents
        self.angles = torch.stack((angles.cos(), angles.sin())).to(weights)  # [2, positions, head_dim / 2]

    def step(self) -> None:
        """Decode the token at the position, then write the next token and position into the same buffers."""
        m = self.model
        x = self._weight("embed")[self.token]
        rope = self.angles[:, self.position]  # [2, 1, head_dim / 2]
        known = (self.everywhere <= self.position)[None, None, None]
        for layer in range(m.layers):
            normed = self._norm(x, "input_norm", layer)
            qkv = linear(normed, self._weight("qkv", layer)).view(-1, m.head_dim)
            query, key, value = qkv.split((m.heads, m.kv_heads, m.kv_heads))
            query = rotate(self._norm(query, "q_norm", layer), rope)
            self.keys[layer].index_copy_(1, self.position, rotate(self._norm(key, "k_norm", layer), rope)[:, None])
            self.values[layer].index_copy_(1, self.position, value[:, None])
            attended = scaled_dot_product_attention(
                query[None, :, None], self.keys[layer][None], self.values[layer][None], known, enable_gqa=True
            )
            x = x + linear(attended.reshape(1, -1), self._weight("o", layer))
            normed = self._norm(x, "post_norm", layer)
            gated = silu(linear(normed, self._weight("gate", layer))) * linear(normed, self._weight("up", layer))
            x = x + linear(gated, self._weight("down", layer))
        logits = linear(self._norm(x, "final_norm"), self._weight("lm_head"))
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

    def _weight(self, name: str, layer: int | None = None) -> Tensor:
        slot = self.layout.weight(name, layer)
        return self.weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    def _norm(self, x: Tensor, name: str, layer: int | None = None) -> Tensor:
        return rms_norm(x, x.shape[-1:], self._weight(name, layer), self.model.rms_eps)

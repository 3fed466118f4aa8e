"""Decoder in torch: a step that a CUDA graph can replay, timed as a rival, and the prefill of the lab's own KV cache.

Not the reference: `common/validate/reference.py` is, and shares none of this code.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import rope_table, rotate

CHUNK = 512  # tokens of a prompt at a time within a layer: bounds the memory of scores and of the MLP


class Place(NamedTuple):
    """Positions of tokens, [tokens]; their rotations, [2, tokens, 1, head_dim / 2]; mask of entries, [tokens, end]."""

    positions: Tensor
    rope: Tensor
    visible: Tensor


class TorchDecoder:
    """Layers of a model over a KV cache of `positions` for one sequence.

    weights: flat, [layout.weights_size]; the cache has their dtype and device. dtype: of activations.
    """

    def __init__(self, model: Model, layout: Layout, weights: Tensor, positions: int, dtype: torch.dtype) -> None:
        self.model, self.layout, self.weights, self.dtype = model, layout, weights, dtype
        self.entries = layout.cache.format
        *outer, _, row = layout.cache.stored
        self.cache = torch.zeros(*outer, positions, row, dtype=weights.dtype, device=weights.device)
        self.everywhere = torch.arange(positions, device=weights.device)
        self.rope = rope_table(model, torch.arange(positions)[:, None], dtype).to(weights.device)

    def weight(self, name: str, layer: int | None = None) -> Tensor:
        return self.layout.weight(name, layer).of(self.weights)

    def layer_weights(self, layer: int) -> dict[str, Tensor]:
        return {name: self.weight(name, layer).to(self.dtype) for name in self.layout.layer_weights}

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], weight, self.model.rms_eps)

    def place(self, positions: Tensor, end: int | None = None) -> Place:
        """Place of tokens that see at most the first `end` entries."""
        return Place(positions, self.rope[:, positions, None], self.everywhere[:end] <= positions[:, None])

    def layer(self, x: Tensor, layer: int, weights: dict[str, Tensor], at: Place, attend: bool = True) -> Tensor:
        """x, [tokens, hidden], after the layer, which stores the entries of its tokens; not attend: it does only that.

        weights: from `layer_weights`.
        """
        m, cache = self.model, self.cache[layer]
        bias = weights["qkv_bias"] if m.qkv_bias else None
        qkv = linear(self.norm(x, weights["input_norm"]), weights["qkv"], bias).view(len(x), -1, m.head_dim)
        query, key, value = qkv.split((m.heads, m.kv_heads, m.kv_heads), dim=1)
        key = rotate(self.norm(key, weights["k_norm"]) if m.qk_norm else key, at.rope)
        made, form = torch.stack((key, value)).transpose(1, 2), self.entries
        cache.index_copy_(2, at.positions, form.encode(made) if form.scaled else made.to(cache.dtype))
        if not attend:
            return x
        query = rotate(self.norm(query, weights["q_norm"]) if m.qk_norm else query, at.rope).transpose(0, 1)
        keys, values = form.decode(cache[:, None, :, : at.visible.shape[-1]], m.head_dim).to(self.dtype)
        # The other backends may round products of fp32 to TF32.
        with sdpa_kernel(SDPBackend.MATH) if self.dtype == torch.float32 else nullcontext():
            attended = scaled_dot_product_attention(query[None], keys, values, at.visible, enable_gqa=True)
        x = x + linear(attended[0].transpose(0, 1).reshape(len(x), -1), weights["o"])
        normed = self.norm(x, weights["post_norm"])
        return x + linear(silu(linear(normed, weights["gate"])) * linear(normed, weights["up"]), weights["down"])


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


@torch.inference_mode()
def prefill(model: Model, layout: Layout, weights: Tensor, ids: Sequence[int], history: Tensor) -> Tensor:
    """Entries of `ids`, which follow the positions of `history`, as the kernels would store them.

    Weights and entries are bf16, activations fp32, as in the kernels: bf16 activations would give entries that are no
    legal roundings of the reference's.
    weights: flat, [layout.weights_size], on the device that computes. history: from `KvCache.entries`, on the CPU, as
    is the result, of the new positions.
    """
    first, end = history.shape[-2], history.shape[-2] + len(ids)
    if weights.is_cuda:
        torch.set_float32_matmul_precision("highest")  # some images allow TF32: its products are no fp32
    decoder = TorchDecoder(model, layout, weights, end, torch.float32)
    decoder.cache[..., :first, :] = history
    x = decoder.weight("embed")[torch.tensor(ids, device=weights.device)].float()
    for layer in range(model.layers):
        layer_weights, attend = decoder.layer_weights(layer), layer + 1 < model.layers
        for at in range(0, len(ids), CHUNK):
            chunk = slice(at, at + CHUNK)
            place = decoder.place(decoder.everywhere[first:][chunk], min(first + at + CHUNK, end))
            x[chunk] = decoder.layer(x[chunk], layer, layer_weights, place, attend)
    return decoder.cache[..., first:, :].cpu()

"""Decoder in torch: the prefill of the lab's own KV cache, and the step of a rival.

Not the reference: `common/validate/reference.py` is. Both take their rotation from there; all else is written twice.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from common.model.layout import Layout
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

    def __init__(self, layout: Layout, weights: Tensor, positions: int, dtype: torch.dtype) -> None:
        self.model, self.layout, self.weights, self.dtype = layout.model, layout, weights, dtype
        self.entries = layout.cache.format
        *outer, _, row = layout.cache.stored
        self.cache = torch.zeros(*outer, positions, row, dtype=weights.dtype, device=weights.device)
        self.everywhere = torch.arange(positions, device=weights.device)
        self.rope = rope_table(layout.model, torch.arange(positions)[:, None], dtype).to(weights.device)

    def weight(self, name: str, layer: int | None = None) -> Tensor:
        return self.layout.weight(name, layer).of(self.weights)

    @torch.no_grad()
    def read(self, ids: Sequence[int], first: int) -> None:
        """Store the entries of `ids` at the positions from `first` on; they attend to those before."""
        known, end = torch.tensor(ids, dtype=torch.long, device=self.weights.device), first + len(ids)
        x = self.weight("embed")[known].to(self.dtype)
        for layer in range(self.model.layers):
            weights, attend = self.layer_weights(layer), layer + 1 < self.model.layers
            for at in range(0, len(ids), CHUNK):
                chunk = slice(at, at + CHUNK)
                place = self.place(self.everywhere[first:end][chunk], min(first + at + CHUNK, end))
                x[chunk] = self.layer(x[chunk], self.cache[layer], weights, place, attend)

    def layer_weights(self, layer: int) -> dict[str, Tensor]:
        return {name: self.weight(name, layer).to(self.dtype) for name in self.layout.layer_weights}

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], weight, self.model.rms_eps)

    def place(self, positions: Tensor, end: int | None = None) -> Place:
        """Place of tokens in a cache of which the first `end` entries may be seen; None: all."""
        return Place(positions, self.rope[:, positions, None], self.everywhere[:end] <= positions[:, None])

    def layer(self, x: Tensor, cache: Tensor, weights: dict[str, Tensor], at: Place, attend: bool = True) -> Tensor:
        """x, [tokens, hidden], after a layer, which stores the entries of its tokens; not attend: it does only that.

        cache: the layer's, [2, kv_heads, positions, row]. weights: from `layer_weights`.
        """
        m = self.model
        bias = weights["qkv_bias"] if m.qkv_bias else None
        qkv = linear(self.norm(x, weights["input_norm"]), weights["qkv"], bias).view(len(x), -1, m.head_dim)
        query, key, value = qkv.split((m.heads, m.kv_heads, m.kv_heads), dim=1)
        key = rotate(self.norm(key, weights["k_norm"]) if m.qk_norm else key, at.rope)
        made, form = torch.stack((key, value)).transpose(1, 2), self.entries
        cache.index_copy_(2, at.positions, form.encode(made) if form.scaled else made.to(cache.dtype))
        if not attend:
            return x
        query = rotate(self.norm(query, weights["q_norm"]) if m.qk_norm else query, at.rope).transpose(0, 1)
        # Heads of a group as more tokens of their KV head: with `enable_gqa` and a mask only the slow backend is left.
        grouped = query.reshape(1, m.kv_heads, -1, m.head_dim)
        visible = at.visible.repeat(m.heads // m.kv_heads, 1)
        keys, values = form.decode(cache[:, None, :, : at.visible.shape[-1]], m.head_dim).to(self.dtype)
        # The other backends may round products of fp32 to TF32.
        with sdpa_kernel(SDPBackend.MATH) if self.dtype == torch.float32 else nullcontext():
            attended = scaled_dot_product_attention(grouped, keys, values, visible).view(query.shape)
        x = x + linear(attended.transpose(0, 1).reshape(len(x), -1), weights["o"])
        normed = self.norm(x, weights["post_norm"])
        gate, up = (linear(normed, weights[name]) for name in ("gate", "up"))
        return x + linear(silu(gate) * up, weights["down"])


@torch.inference_mode()
def prefill(layout: Layout, weights: Tensor, ids: Sequence[int], history: Tensor) -> Tensor:
    """Entries of `ids`, which follow the positions of `history`, as the kernels would store them.

    Weights and entries are bf16, activations fp32, as in the kernels: bf16 activations would give entries that are no
    legal roundings of the reference's.
    weights: flat, [layout.weights_size], on the device that computes. history: from `KvCache.entries`, on the CPU, as
    is the result, of the new positions.
    """
    first, end = history.shape[-2], history.shape[-2] + len(ids)
    if weights.is_cuda:
        torch.set_float32_matmul_precision("highest")  # some images allow TF32: its products are no fp32
    decoder = TorchDecoder(layout, weights, end, torch.float32)
    decoder.cache[..., :first, :] = history
    decoder.read(ids, first)
    return decoder.cache[..., first:, :].cpu()

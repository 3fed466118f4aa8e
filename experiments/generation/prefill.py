"""Prefill: a prompt's keys and values, computed by torch for all its tokens at once, as the kernels would store them.

Weights and entries are bf16. Everything between is fp32, as in the kernels: with bf16 activations the entries would be
no legal roundings of the reference's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import rope_table, rotate

CHUNK = 512  # tokens at a time within a layer: bounds the memory of scores and of the MLP


class Prefill:
    """A model whose entries are computed on `device`, "cpu" or "cuda". weights: flat bf16, [layout.weights_size]."""

    def __init__(self, model: Model, layout: Layout, weights: Tensor, device: str) -> None:
        self.model, self.layout, self.weights = model, layout, weights.to(device)

    @torch.inference_mode()
    def entries(self, ids: Sequence[int], history: Tensor) -> Tensor:
        """The entries of `ids`, which follow the positions of `history`.

        history: bf16, [layers, 2, kv_heads, positions, head_dim], on the CPU, as is the result, of the new positions.
        """
        m, first, device = self.model, history.shape[-2], self.weights.device
        if device.type == "cuda":
            torch.set_float32_matmul_precision("highest")  # some images allow TF32: its products are no fp32
        known = history.to(device)
        x = self._weight("embed")[torch.tensor(ids, device=device)].float()
        tables = [rope_table(m, first + at, torch.float32) for at in range(len(ids))]
        rope = torch.stack(tables, dim=1).to(device)[:, :, None]  # [2, tokens, 1, head_dim / 2]
        stored = []
        for layer in range(m.layers):
            x, entries = self._layer(x, layer, rope, known[layer], last=layer + 1 == m.layers)
            stored.append(entries)
        return torch.stack(stored).cpu()

    def _layer(self, x: Tensor, layer: int, rope: Tensor, known: Tensor, last: bool) -> tuple[Tensor, Tensor]:
        """x after the layer, [tokens, hidden], and the entries of its tokens. Of the last layer only these count."""
        m, first = self.model, known.shape[-2]
        weights = {name: self._weight(name, layer).float() for name in ("qkv", "o", "gate", "up", "down")}
        out, every = [], known
        for at in range(0, len(x), CHUNK):
            here = x[at : at + CHUNK]
            qkv = linear(self._norm(here, "input_norm", layer), weights["qkv"]).view(len(here), -1, m.head_dim)
            query, key, value = qkv.split((m.heads, m.kv_heads, m.kv_heads), dim=1)
            angles = rope[:, at : at + CHUNK]
            key = rotate(self._norm(key, "k_norm", layer), angles)
            every = torch.cat((every, torch.stack((key, value)).transpose(1, 2).bfloat16()), dim=2)
            if last:
                continue
            query = rotate(self._norm(query, "q_norm", layer), angles).transpose(0, 1)
            end = first + at + len(here)
            rows = torch.arange(end - len(here), end, device=x.device)
            visible = torch.arange(end, device=x.device) <= rows[:, None]
            keys, values = every.float()[:, None]
            with sdpa_kernel(SDPBackend.MATH):  # the others may round products to TF32
                attended = scaled_dot_product_attention(query[None], keys, values, visible, enable_gqa=True)
            here = here + linear(attended[0].transpose(0, 1).reshape(len(here), -1), weights["o"])
            normed = self._norm(here, "post_norm", layer)
            out.append(
                here + linear(silu(linear(normed, weights["gate"])) * linear(normed, weights["up"]), weights["down"])
            )
        return torch.cat(out) if out else x, every[:, :, first:]

    def _weight(self, name: str, layer: int | None = None) -> Tensor:
        slot = self.layout.weight(name, layer)
        return self.weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    def _norm(self, x: Tensor, name: str, layer: int) -> Tensor:
        return rms_norm(x, x.shape[-1:], self._weight(name, layer).float(), self.model.rms_eps)

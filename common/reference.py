"""The truth: one decode step of a Qwen3-style decoder in plain torch, stage by stage, every result kept as a tap.

It is written to be read beside the paper formulas, in float64, and it rounds in exactly one place: where a key or a
value is stored in the cache. Formulas: RMSNorm, Zhang and Sennrich 2019 (arXiv:1910.07467); RoPE, Su et al. 2021
(arXiv:2104.09864) with the half-split pairing of transformers' Qwen3; grouped-query attention, Ainslie et al. 2023
(arXiv:2305.13245); SwiGLU, Shazeer 2020 (arXiv:2002.05202); QK-norm before RoPE, Qwen3 report (arXiv:2505.09388).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor
from torch.nn.functional import silu

from common.errors import LabError
from common.layout import Layout
from common.model import Model

CHUNK = 1 << 16  # matrix elements widened at a time: 512 KB of float64 stay in a core's cache


@dataclass(frozen=True)
class Taps:
    """What every stage of one step left, in the order it was computed.

    values: (stage, layer or None) -> tensor in the reference's dtype, with the shape of the layout's slot; also
            ("key", layer) and ("value", layer), [kv_heads, head_dim], as they are *before* rounding for the cache.
    stored: [layers, 2, kv_heads, head_dim] in the cache's dtype: the entries attention went on with.
    token:  the id with the largest logit, the lowest of them on ties.
    """

    values: Mapping[tuple[str, int | None], Tensor]
    stored: Tensor
    token: int

    def __getitem__(self, tap: tuple[str, int | None]) -> Tensor:
        return self.values[tap]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rope_table(model: Model, position: int, dtype: torch.dtype) -> Tensor:
    """cos, then sin, of position * theta^(-2i / head_dim) for i < head_dim / 2: [2, head_dim / 2] in `dtype`.

    The angles themselves are always float64: in fp32 they would be off by 2^-24 of a *position*, not of a turn.
    """
    exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float64) / model.head_dim
    angles = position * model.rope_theta**-exponents
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + head_dim / 2]) by its angle; x: [heads, head_dim]."""
    cos, sin = table
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q k / sqrt(head_dim)) v; query head h reads KV head h // (heads / kv_heads).

    query: [heads, head_dim]; keys, values: [kv_heads, positions, head_dim]. Returns [heads, head_dim].
    """
    grouped = query.view(keys.shape[0], -1, query.shape[-1])
    scores = grouped @ keys.transpose(1, 2) / query.shape[-1] ** 0.5
    return (scores.softmax(dim=-1) @ values).view_as(query)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch on the calling thread: pieces of CHUNK are done before others could join, and on a busy machine
    waiting for those at every piece makes a step many times slower (measured: 17 s against 0.6 s)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Reference:
    """One model with its weights, ready to decode steps.

    weights: flat bf16, [layout.weights_size], only read. dtype: float64 for the truth; float32 gives the runs whose
    distance from it sets the tolerances. pieces: how many partial sums each matrix product is added up from, so that
    float32 runs of the same step can differ in their order of summation. Weights are widened a few rows at a time,
    so a step needs little memory beyond them.
    """

    def __init__(
        self, model: Model, layout: Layout, weights: Tensor, dtype: torch.dtype = torch.float64, pieces: int = 1
    ) -> None:
        if weights.dtype != torch.bfloat16 or weights.shape != (layout.weights_size,):
            raise LabError(
                f"weights are {weights.dtype} {tuple(weights.shape)}, model {model.name} has "
                f"torch.bfloat16 ({layout.weights_size},)",
                "pack the checkpoint with the layout of this model",
            )
        self.model, self.layout, self.weights, self.dtype, self.pieces = model, layout, weights, dtype, pieces

    @one_thread()
    def step(self, token: int, position: int, cache: Tensor, stored: Tensor | None = None) -> Taps:
        """Decode `token` at `position`.

        cache: the layout's cache shape; positions below `position` are the history, nothing else is read and
        nothing is written. Its dtype is what keys and values are rounded to: bf16 by the contract (a float64 cache
        does not round). stored: [layers, 2, kv_heads, head_dim], entries of this position that attention goes on
        with instead of the reference's own rounding, so that a near-tie rounded the other way is not amplified.
        Raises LabError when token or position is out of range.
        """
        m = self.model
        if not 0 <= token < m.vocab:
            raise LabError(f"token id {token} is outside the vocabulary", f"give an id from 0 to {m.vocab - 1}")
        if not 0 <= position < m.positions:
            raise LabError(f"position {position} is outside the cache", f"give a position from 0 to {m.positions - 1}")

        tap: dict[tuple[str, int | None], Tensor] = {}
        used = []
        x = tap["embed", None] = self._matrix("embed")[token].to(self.dtype)
        rope = tap["rope", None] = rope_table(m, position, self.dtype)

        for layer in range(m.layers):
            normed = tap["input_norm", layer] = rms_norm(x, self._vector("input_norm", layer), m.rms_eps)
            qkv = tap["qkv", layer] = self._multiply("qkv", normed, layer)
            query, key, value = (part.view(-1, m.head_dim) for part in qkv.split((m.query, m.kv, m.kv)))

            query = rotate(rms_norm(query, self._vector("q_norm", layer), m.rms_eps), rope)
            key = rotate(rms_norm(key, self._vector("k_norm", layer), m.rms_eps), rope)
            tap["qk_norm_rope", layer] = query.flatten()
            tap["key", layer], tap["value", layer] = key, value
            used.append(torch.stack((key, value)).to(cache.dtype) if stored is None else stored[layer])

            known = torch.cat((cache[layer, :, :, :position], used[layer].unsqueeze(2)), dim=2).to(self.dtype)
            attention = tap["attention", layer] = attend(query, *known).flatten()
            x = tap["o_proj", layer] = x + self._multiply("o", attention, layer)

            normed = tap["post_norm", layer] = rms_norm(x, self._vector("post_norm", layer), m.rms_eps)
            gate, up = self._multiply("gate", normed, layer), self._multiply("up", normed, layer)
            gate_up = tap["gate_up", layer] = silu(gate) * up
            x = tap["down", layer] = x + self._multiply("down", gate_up, layer)

        normed = tap["final_norm", None] = rms_norm(x, self._vector("final_norm"), m.rms_eps)
        logits = tap["lm_head", None] = self._multiply("lm_head", normed)
        return Taps(tap, torch.stack(used), int(logits.argmax()))

    def greedy(self, prompt: Sequence[int], max_tokens: int) -> list[int]:
        """The `max_tokens` ids that greedy decoding appends to `prompt`.

        Raises LabError when there is nothing to decode or it does not fit in the cache.
        """
        steps = len(prompt) + max_tokens - 1  # the last id is chosen but not decoded
        if not prompt or max_tokens < 1:
            raise LabError(f"{len(prompt)} prompt ids, {max_tokens} tokens wanted", "give at least one of each")
        if steps > self.model.positions:
            raise LabError(
                f"{len(prompt)} prompt ids and {max_tokens} new tokens need {steps} positions, "
                f"the cache has {self.model.positions}",
                "shorten the prompt, ask for fewer tokens, or choose a model with more positions",
            )
        ids = list(prompt)
        cache = torch.full(self.layout.cache.shape, torch.nan, dtype=torch.bfloat16)
        for position in range(steps):
            taps = self.step(ids[position], position, cache)
            cache[:, :, :, position] = taps.stored
            if position + 1 == len(ids):
                ids.append(taps.token)
        return ids[len(prompt) :]

    def _matrix(self, name: str, layer: int | None = None) -> Tensor:
        slot = self.layout.weight(name, layer)
        return self.weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    def _vector(self, name: str, layer: int | None = None) -> Tensor:
        return self._matrix(name, layer).to(self.dtype)

    def _multiply(self, name: str, x: Tensor, layer: int | None = None) -> Tensor:
        """The weight matrix [rows, columns] times x [columns], widened a chunk of rows at a time."""
        matrix = self._matrix(name, layer)
        parts = x.chunk(self.pieces)

        def product(rows: Tensor) -> Tensor:
            columns = rows.to(self.dtype).split(parts[0].shape[0], dim=1)
            return torch.stack([column @ part for column, part in zip(columns, parts, strict=True)]).sum(0)

        return torch.cat([product(rows) for rows in matrix.split(ceil(CHUNK / matrix.shape[1]))])

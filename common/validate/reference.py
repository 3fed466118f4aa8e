"""Float64 reference of one decode step, in plain torch.

The step is computed stage by stage, and the result of every stage is kept as a tap. Its only rounding is of keys and
values stored in the cache.

Formulas: RMSNorm, Zhang and Sennrich 2019 (arXiv:1910.07467); RoPE, Su et al. 2021 (arXiv:2104.09864) with the
half-split pairing of transformers, and Llama 3's scaling of it (`Scaling`); grouped-query attention, Ainslie et al.
2023 (arXiv:2305.13245); SwiGLU, Shazeer 2020 (arXiv:2002.05202); QK-norm before RoPE, Qwen3 report (arXiv:2505.09388);
biases of q, k and v, Qwen2.5 report (arXiv:2412.15115).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, pi

import torch
from torch import Tensor
from torch.nn.functional import silu

from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model

# Matrix elements converted to float64 at a time: 512 KB, which fit the L2 cache of a core; on a GPU 512 MB.
CHUNK = {"cpu": 1 << 16, "cuda": 1 << 26}


@dataclass(frozen=True)
class Taps:
    """Results of all stages of one step.

    values: (stage, layer or None) -> tensor in the reference's dtype with the shape of the layout's slot, in the order
            of computation; also ("key", layer) and ("value", layer), [kv_heads, head_dim], before they are rounded.
    stored: [layers, 2, kv_heads, row] in the cache's dtype: the keys and values as attention read them; a row has the
            elements of an entry in the layout's format of the cache.
    token:  the id with the largest logit; on ties the lowest id.
    """

    values: Mapping[tuple[str, int | None], Tensor]
    stored: Tensor
    token: int

    def __getitem__(self, tap: tuple[str, int | None]) -> Tensor:
        return self.values[tap]


@dataclass(frozen=True)
class Past:
    """Past of a step: the entries of positions 0 to n-1.

    pieces: in their order, bf16, [layers, 2, kv_heads, positions of the piece, row], on any device of torch.
    digest: of the content.
    """

    pieces: tuple[Tensor, ...]
    digest: bytes

    @classmethod
    def of(cls, entries: Tensor) -> "Past":
        return cls((), b"").then(entries)

    @property
    def positions(self) -> int:
        return sum(piece.shape[-2] for piece in self.pieces)

    def then(self, entries: Tensor) -> "Past":
        """This past followed by `entries`."""
        return Past((*self.pieces, entries), digest_of(self.digest, entries))


def digest_of(*parts: bytes | Tensor) -> bytes:
    """Digest of bytes, and of the bits of tensors on the CPU."""
    digest = hashlib.blake2b()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension. x: [..., n], weight: [n]."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rope_table(model: Model, position: int | Tensor, dtype: torch.dtype) -> Tensor:
    """cos, then sin, of position * frequency for i < head_dim / 2: [2, head_dim / 2] in `dtype`.

    The frequency is theta^(-2i / head_dim), scaled as `Scaling` says. The angles are always float64. In fp32 their
    rounding error would grow with the position: up to 2^-24 * position radians.
    """
    exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float64) / model.head_dim
    frequencies, scaling = model.rope_theta**-exponents, model.rope_scaling
    if scaling.factor != 1:
        turns = scaling.positions * frequencies / (2 * pi)
        kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
        frequencies = frequencies * (kept + (1 - kept) / scaling.factor)
    angles = position * frequencies
    return torch.stack((angles.cos(), angles.sin())).to(dtype)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + head_dim / 2]) by its angle. x: [heads, head_dim]; table: from rope_table."""
    cos, sin = table
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attend(query: Tensor, keys: Tensor, values: Tensor, before: float = 1.0) -> Tensor:
    """softmax(q k / sqrt(head_dim)) v; query head h reads KV head h // (heads / kv_heads).

    query: [heads, head_dim]; keys, values: [kv_heads, positions, head_dim]. before: a factor of the scores until the
    softmax, which changes only their rounding. Returns [heads, head_dim].
    """
    grouped = query.view(keys.shape[0], -1, query.shape[-1]) * before
    scores = grouped @ keys.transpose(1, 2)
    below = (scores - scores.amax(-1, keepdim=True)) / (query.shape[-1] ** 0.5 * before)
    return (below.softmax(dim=-1) @ values).view_as(query)


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which torch uses one thread.

    A product of CHUNK elements is done before other threads could start. On a busy machine, waiting for them at every
    product made a step many times slower (measured: 17 s against 0.6 s).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Reference:
    """A model and its weights, to compute any step.

    weights: flat bf16, [layout.weights_size], never written. dtype: float64 for the reference values; float32 for the
    runs that set the tolerances by their error. pieces: each matrix product is the sum of this many partial sums over
    columns, and scores have another factor, so that float32 runs of one step differ in their order of summation, and
    in the rounding of a score that is a single product. device: for torch: formulas and rounding are the same, only the
    order within a sum differs; taps are on the CPU. A few rows of weights are converted to `dtype` at a time, so a step
    needs little memory beyond the weights.
    """

    def __init__(
        self, layout: Layout, weights: Tensor, dtype: torch.dtype = torch.float64, pieces: int = 1, device: str = "cpu"
    ) -> None:
        self.model, self.layout, self.dtype, self.pieces = layout.model, layout, dtype, pieces
        self.weights, self.device = weights.to(device), device

    @one_thread()
    def step(self, token: int, position: int, cache: Tensor | Sequence[Tensor], stored: Tensor | None = None) -> Taps:
        """Decode `token` at `position`.

        cache: [layers, 2, kv_heads, positions, row], on any device; positions below `position` are the history,
        nothing else is read and nothing is written. Keys and values are rounded to the layout's format of the cache,
        whose rows are bf16 elements (a float64 cache, of rows of head_dim, does not round). Or the history in pieces of
        bf16, in their order.
        stored: [layers, 2, kv_heads, row], the kernel's own entries of this position, for attention instead of the
        reference's. A value half way between two numbers may be rounded either way; with the kernel's choice that
        difference does not grow in later stages.
        """
        m = self.model
        tap: dict[tuple[str, int | None], Tensor] = {}
        entries = []
        pieces: Sequence[Tensor]
        pieces, dtype = (
            ([cache[..., :position, :]], cache.dtype) if isinstance(cache, Tensor) else (cache, torch.bfloat16)
        )
        form = self.layout.cache.format if dtype == torch.bfloat16 else None
        x = tap["embed", None] = self._matrix("embed")[token].to(self.dtype)
        rope = tap["rope", None] = rope_table(m, position, self.dtype).to(self.device)

        for layer in range(m.layers):
            normed = tap["input_norm", layer] = rms_norm(x, self._vector("input_norm", layer), m.rms_eps)
            qkv = self._multiply("qkv", normed, layer)
            if m.qkv_bias:
                qkv = qkv + self._vector("qkv_bias", layer)
            tap["qkv", layer] = qkv
            query, key, value = (part.view(-1, m.head_dim) for part in qkv.split((m.query, m.kv, m.kv)))

            if m.qk_norm:
                query = rms_norm(query, self._vector("q_norm", layer), m.rms_eps)
                key = rms_norm(key, self._vector("k_norm", layer), m.rms_eps)
            query, key = rotate(query, rope), rotate(key, rope)
            tap["qk_norm_rope", layer] = query.flatten()
            tap["key", layer], tap["value", layer] = key, value
            both = torch.stack((key, value))
            rounded = (
                (form.encode(both) if form else both.to(dtype)) if stored is None else stored[layer].to(self.device)
            )
            entries.append(rounded)

            rows = torch.cat((*(piece[layer].to(self.device) for piece in pieces), rounded.unsqueeze(2)), dim=2)
            keys, values = (form.decode(rows, m.head_dim) if form else rows).to(self.dtype)
            attention = tap["attention", layer] = attend(query, keys, values, 1 / (2 * self.pieces - 1)).flatten()
            x = tap["o_proj", layer] = x + self._multiply("o", attention, layer)

            normed = tap["post_norm", layer] = rms_norm(x, self._vector("post_norm", layer), m.rms_eps)
            gate, up = self._multiply("gate", normed, layer), self._multiply("up", normed, layer)
            gate_up = tap["gate_up", layer] = silu(gate) * up
            x = tap["down", layer] = x + self._multiply("down", gate_up, layer)

        normed = tap["final_norm", None] = rms_norm(x, self._vector("final_norm"), m.rms_eps)
        logits = tap["lm_head", None] = self._multiply("lm_head", normed)
        for stage, _ in set(self.layout.taps()) - tap.keys():
            raise LabError(f"stage {stage} leaves a tap and has no reference", f"set tap[{stage!r}, ...] in {__name__}")
        found = {name: value.cpu() for name, value in tap.items()}
        return Taps(found, torch.stack(entries).cpu(), int(logits.cpu().argmax()))  # a GPU's argmax may take any tie

    def greedy(self, prompt: Sequence[int], max_tokens: int, history: Tensor | None = None) -> list[int]:
        """The `max_tokens` ids that greedy decoding appends to `prompt`.

        history: entries of the first positions of the prompt, but not of its last: bf16, [layers, 2, kv_heads,
        positions, head_dim]; None: all are computed.
        """
        steps = len(prompt) + max_tokens - 1  # the last id is chosen but not decoded
        ids = list(prompt)
        cache = torch.full(self.layout.cache.stored, torch.nan, dtype=torch.bfloat16)
        known = 0
        if history is not None:
            known = history.shape[-2]
            cache[..., :known, :] = history
        for position in range(known, steps):
            taps = self.step(ids[position], position, cache)
            cache[:, :, :, position] = taps.stored
            if position + 1 == len(ids):
                ids.append(taps.token)
        return ids[len(prompt) :]

    def _matrix(self, name: str, layer: int | None = None) -> Tensor:
        return self.layout.weight(name, layer).of(self.weights)

    def _vector(self, name: str, layer: int | None = None) -> Tensor:
        return self._matrix(name, layer).to(self.dtype)

    def _multiply(self, name: str, x: Tensor, layer: int | None = None) -> Tensor:
        """The weight matrix [rows, columns] times x [columns], a chunk of rows at a time, summed as `pieces`."""
        matrix = self._matrix(name, layer)
        parts = x.chunk(self.pieces)

        def product(rows: Tensor) -> Tensor:
            columns = rows.to(self.dtype).split(parts[0].shape[0], dim=1)
            products = [column @ part for column, part in zip(columns, parts, strict=True)]
            return products[0] if len(products) == 1 else torch.stack(products).sum(0)

        found = [product(rows) for rows in matrix.split(ceil(CHUNK[self.device] / matrix.shape[1]))]
        return found[0] if len(found) == 1 else torch.cat(found)

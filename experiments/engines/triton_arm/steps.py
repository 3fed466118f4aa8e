"""Launches of the Triton kernels of one step, over the buffers that `common.model.layout` lays out."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from common.errors import LabError
from common.model.layout import Layout
from common.validate.reference import rope_table


@dataclass(frozen=True)
class Tiles:
    """Elements of a tile, powers of two: rows and columns of a matrix, positions of the cache, logits, and heads.

    head_rows: rows of the LM head.
    """

    rows: int
    head_rows: int
    columns: int
    positions: int
    logits: int
    heads: int


TILES = Tiles(4, 16, 1024, 64, 8192, 1)


def kernels() -> ModuleType:
    """The module of kernels. Raises LabError where Triton is missing."""
    try:
        return importlib.import_module("experiments.engines.triton_arm.kernels")
    except ImportError as error:
        raise LabError(f"triton does not import: {error}", "pip install -e '.[triton]'") from None


@dataclass(frozen=True)
class Buffers:
    """Tensors on one device; `common.model.layout` defines their contents.

    weights: each bf16 tensor by name and layer. cache: bf16, in its shape. scratch: float32; state: int32.
    """

    weights: Mapping[tuple[str, int | None], Tensor]
    cache: Tensor
    scratch: Tensor
    state: Tensor


@dataclass(frozen=True)
class Launch:
    """One launch: a kernel of `kernels`, its grid, its tensors, and its compile-time constants."""

    kernel: Any
    programs: int
    given: tuple[Tensor, ...]
    constants: Mapping[str, int | float]

    def __call__(self) -> None:
        self.kernel[(self.programs,)](*self.given, **self.constants)


class TritonStep:
    """Greedy decoding of one token: six launches for each layer and three more, which are only queued.

    launches: in their order; they write every tap. Raises LabError for formats below bf16, and as `kernels` does.
    """

    def __init__(self, layout: Layout, buffers: Buffers, tiles: Tiles) -> None:
        if layout.scaled:
            raise LabError(
                f"the Triton kernels read bf16, not model {layout.model.name}", "leave format= and kv_format= out"
            )
        self.layout, self.buffers, self.tiles = layout, buffers, tiles
        self.kernels, self._eps = kernels(), {"EPS": layout.model.rms_eps}
        self._position = {"POSITION": self._word("position")}
        table = rope_table(layout.model, torch.arange(layout.model.positions)[:, None], torch.float32)
        self.angles = torch.cat((*table,), 1).to(buffers.state.device)
        self.launches = self._launches()

    def __call__(self) -> None:
        """Decode the token at the position of the state, and advance it."""
        for launch in self.launches:
            launch()

    def _launches(self) -> list[Launch]:
        m, k, state = self.layout.model, self.kernels, self.buffers.state
        x, rope, logits = self._tap("embed"), self._tap("rope"), self._tap("lm_head")
        ids, pair = {"IDS": self._word("ids")}, {"PAIR": m.head_dim, "PAIR_BLOCK": _power(m.head_dim)}
        sizes = {"HIDDEN": m.hidden, "BLOCK": self._block(m.hidden)} | pair | ids | self._position
        launches = [Launch(k.embed, 1, (self._weight("embed"), self.angles, state, x, rope), sizes)]
        for layer in range(m.layers):
            launches += self._layer(layer, x)
            x = self._tap("down", layer)
        norm = self._weight("final_norm")
        head = x, norm, self._weight("lm_head"), norm, self._tap("final_norm"), logits
        more = {"BIAS": False} | self._eps
        launches.append(self._rows(k.norm_matvec, head, m.vocab, m.hidden, self.tiles.head_rows, **more))
        sizes = {"VOCAB": m.vocab, "BLOCK": min(self.tiles.logits, _power(m.vocab))} | ids | self._position
        sizes |= {"GIVEN": self._word("prompt_length"), "TOKEN": self._word("token")}
        return [*launches, Launch(k.argmax, 1, (logits, state), sizes)]

    def _layer(self, layer: int, x: Tensor) -> list[Launch]:
        """Launches of one layer. x: the residual stream before it, [hidden]."""
        m, k, state = self.layout.model, self.kernels, self.buffers.state
        weight, tap = partial(self._weight, layer=layer), partial(self._tap, layer=layer)
        cache, heads, rows = self.buffers.cache[layer].view(torch.int16), m.heads + 2 * m.kv_heads, self.tiles.rows
        both = {"KV_HEADS": m.kv_heads, "ENTRIES": m.positions} | self._position
        rotation = {"HEADS": m.heads, "HALF": m.head_dim // 2, "HALF_BLOCK": _power(m.head_dim // 2)}
        attention: dict[str, int | float] = {"DIM": m.head_dim, "DIM_BLOCK": _power(m.head_dim)}
        attention |= {"GROUP": m.heads // m.kv_heads, "SCALE": m.head_dim**-0.5, "POSITIONS": self.tiles.positions}
        norm = weight("input_norm")  # also given where the model lacks a vector, and then not read
        bias, q_norm, k_norm = (
            weight(name) if present else norm
            for name, present in (("qkv_bias", m.qkv_bias), ("q_norm", m.qk_norm), ("k_norm", m.qk_norm))
        )
        normed = x, norm, weight("qkv"), bias, tap("input_norm"), tap("qkv")
        rotated = tap("qkv"), q_norm, k_norm, self._tap("rope"), state, tap("qk_norm_rope"), cache
        attended = tap("qk_norm_rope"), cache, state, tap("attention")
        added = tap("attention"), weight("o"), x, tap("o_proj")
        gated = tap("o_proj"), weight("post_norm"), weight("gate"), weight("up"), tap("post_norm"), tap("gate_up")
        last = tap("gate_up"), weight("down"), tap("o_proj"), tap("down")
        tile = {"ROWS": self.tiles.heads, "NORM": m.qk_norm}
        return [
            self._rows(k.norm_matvec, normed, m.query + 2 * m.kv, m.hidden, rows, BIAS=m.qkv_bias, **self._eps),
            Launch(k.qk_norm_rope, -(-heads // self.tiles.heads), rotated, rotation | both | tile | self._eps),
            Launch(k.attention, m.heads, attended, attention | both),
            self._rows(k.matvec_residual, added, m.hidden, m.query, rows),
            self._rows(k.norm_gate_up, gated, m.intermediate, m.hidden, rows, **self._eps),
            self._rows(k.matvec_residual, last, m.hidden, m.intermediate, rows),
        ]

    def _rows(
        self, kernel: Any, given: tuple[Tensor, ...], count: int, columns: int, rows: int, **more: float
    ) -> Launch:
        """A launch over matrices of [count, columns], with one program for every `rows` rows."""
        sizes = {"COUNT": count, "COLUMNS": columns, "ROWS": rows, "BLOCK": self._block(columns)}
        return Launch(kernel, -(-count // rows), given, sizes | more)

    def _word(self, name: str) -> int:
        return self.layout.state[name].offset

    def _block(self, columns: int) -> int:
        return min(self.tiles.columns, _power(columns))

    def _tap(self, name: str, layer: int | None = None) -> Tensor:
        return self.layout.tap(name, layer).of(self.buffers.scratch)

    def _weight(self, name: str, layer: int | None = None) -> Tensor:
        tied = name == "lm_head" and self.layout.tied
        return self.buffers.weights["embed" if tied else name, layer].view(torch.int16)


def _power(count: int) -> int:
    """The smallest power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()

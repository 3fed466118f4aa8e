"""Launches of the Triton kernels of one step, over the buffers that `common.model.layout` lays out."""

import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from common.errors import LabError
from common.model.layout import Layout

INTERPRET = "TRITON_INTERPRET"  # Triton reads it where a kernel is defined
LAYERS, ENDS = 7, 3  # launches in a layer, and outside of the layers


@dataclass(frozen=True)
class Blocks:
    """Elements of a tile, powers of two: rows and columns of a matrix, positions of the cache, and logits.

    head_rows: rows of the LM head.
    """

    rows: int
    head_rows: int
    columns: int
    positions: int
    logits: int


COMPILED = Blocks(4, 16, 1024, 64, 8192)
INTERPRETED = Blocks(128, 128, 1024, 256, 8192)  # a program costs milliseconds, whatever its size


def kernels(interpreted: bool) -> ModuleType:
    """The module of kernels, interpreted or compiled; in one process it is always the same.

    Raises LabError where Triton is missing, and if this process has the other kind.
    """
    before = os.environ.get(INTERPRET)
    os.environ[INTERPRET] = str(int(interpreted))
    try:
        module = importlib.import_module("experiments.engines.triton_arm.kernels")
        with suppress(ImportError):  # the first launch would import it, and it reads the variable, too
            importlib.import_module("triton.experimental.gluon")
    except ImportError as error:
        raise LabError(f"triton does not import: {error}", "pip install -e '.[triton]'") from None
    finally:
        del os.environ[INTERPRET]
        if before is not None:
            os.environ[INTERPRET] = before
    if (type(module.embed).__name__ == "InterpretedFunction") != interpreted:
        kind = "interpreted" if not interpreted else "compiled"
        raise LabError(f"this process has {kind} Triton kernels", "give the command again without the other device")
    return module


@dataclass(frozen=True)
class Buffers:
    """Tensors on one device; `common.model.layout` defines their contents.

    weights: each bf16 tensor by name and layer. cache: bf16, in its shape. scratch: float32; state: int32.
    """

    weights: Mapping[tuple[str, int | None], Tensor]
    cache: Tensor
    scratch: Tensor
    state: Tensor


class TritonStep:
    """Greedy decoding of one token: LAYERS launches for each layer and ENDS more, all of them queued.

    Every tap is written. Raises LabError for formats below bf16, and as `kernels` does.
    """

    def __init__(self, layout: Layout, buffers: Buffers, blocks: Blocks) -> None:
        if layout.scaled:
            raise LabError(f"the Triton kernels read bf16, not model {layout.model.name}", "leave format= out")
        self.layout, self.buffers, self.blocks = layout, buffers, blocks
        self.kernels = kernels(not buffers.state.is_cuda)
        m = layout.model
        half = torch.arange(0, m.head_dim, 2, dtype=torch.float64) / m.head_dim
        self.frequencies = (m.rope_theta**-half).to(buffers.state.device)
        self.launches = self._launches()

    def __call__(self) -> None:
        """Decode the token at the position of the state, and advance it."""
        for launch in self.launches:
            launch()

    def _launches(self) -> list[Callable[[], Any]]:
        m, k, state, tap = self.layout.model, self.kernels, self.buffers.state, self._tap
        at = {name: slot.offset for name, slot in self.layout.state.items()}
        half, head = m.head_dim // 2, {"HALF_BLOCK": _power(m.head_dim // 2)}
        place, eps = {"POSITION": at["position"]}, {"EPS": m.rms_eps}
        x, rope = tap("embed"), tap("rope")

        def launch(kernel: Any, programs: int, *given: Any, **sizes: Any) -> Callable[[], Any]:
            return lambda: kernel[(programs,)](*given, **sizes)

        def matrix(count: int, columns: int, rows: int = self.blocks.rows) -> tuple[int, dict[str, int]]:
            sizes = {"COUNT": count, "COLUMNS": columns, "ROWS": rows, "BLOCK": self._block(columns)}
            return -(-count // rows), sizes

        embedded = {"HIDDEN": m.hidden, "HALF": half, "IDS": at["ids"], "BLOCK": self._block(m.hidden)}
        table = self._weight("embed")
        every = [launch(k.embed, 1, table, self.frequencies, state, x, rope, **embedded, **place, **head)]
        for layer in range(m.layers):

            def mine(name: str, layer: int = layer) -> Tensor:
                return self._tap(name, layer)

            def own(name: str, layer: int = layer) -> Tensor:
                return self._weight(name, layer)

            cache = self.buffers.cache[layer].view(torch.int16)
            qkv, query, attended = mine("qkv"), mine("qk_norm_rope"), mine("attention")
            programs, sizes = matrix(m.query + 2 * m.kv, m.hidden)
            normed = mine("input_norm")
            every.append(launch(k.norm_matvec, programs, x, own("input_norm"), own("qkv"), normed, qkv, **sizes, **eps))
            sizes = {"HEADS": m.heads, "KV_HEADS": m.kv_heads, "HALF": half, "ENTRIES": m.positions}
            given = qkv, own("q_norm"), own("k_norm"), rope, state, query, cache
            every.append(launch(k.qk_norm_rope, m.heads + 2 * m.kv_heads, *given, **sizes, **eps, **place, **head))
            sizes = {"GROUP": m.heads // m.kv_heads, "KV_HEADS": m.kv_heads, "DIM": m.head_dim, "ENTRIES": m.positions}
            tile = {"POSITIONS": self.blocks.positions, "DIM_BLOCK": _power(m.head_dim), "SCALE": m.head_dim**-0.5}
            every.append(launch(k.attention, m.heads, query, cache, state, attended, **sizes, **place, **tile))
            programs, sizes = matrix(m.hidden, m.query)
            every.append(launch(k.matvec_residual, programs, attended, own("o"), x, mine("o_proj"), **sizes))
            programs, sizes = matrix(m.intermediate, m.hidden)
            given = mine("o_proj"), own("post_norm"), own("gate"), own("up"), mine("post_norm"), mine("gate_up")
            every.append(launch(k.norm_gate_up, programs, *given, **sizes, **eps))
            programs, sizes = matrix(m.hidden, m.intermediate)
            given = mine("gate_up"), own("down"), mine("o_proj"), mine("down")
            every.append(launch(k.matvec_residual, programs, *given, **sizes))
            x = mine("down")
        programs, sizes = matrix(m.vocab, m.hidden, self.blocks.head_rows)
        given = x, self._weight("final_norm"), self._weight("lm_head"), tap("final_norm"), tap("lm_head")
        every.append(launch(k.norm_matvec, programs, *given, **sizes, **eps))
        words = {"GIVEN": at["prompt_length"], "TOKEN": at["token"], "IDS": at["ids"]}
        tile = {"VOCAB": m.vocab, "BLOCK": min(self.blocks.logits, _power(m.vocab))}
        return [*every, launch(k.argmax, 1, tap("lm_head"), state, **tile, **words, **place)]

    def _block(self, columns: int) -> int:
        return min(self.blocks.columns, _power(columns))

    def _tap(self, name: str, layer: int | None = None) -> Tensor:
        slot = self.layout.tap(name, layer)
        return self.buffers.scratch[slot.offset : slot.offset + slot.size]

    def _weight(self, name: str, layer: int | None = None) -> Tensor:
        tied = name == "lm_head" and self.layout.tied
        return self.buffers.weights["embed" if tied else name, layer].view(torch.int16)


def _power(count: int) -> int:
    """The smallest power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()

"""Seeded synthetic weights for any model: the same bits on every machine, and activations in a realistic range."""

import math
from collections.abc import Iterator

import numpy as np

from common.cache.weight_files import BLOCK
from common.lazy import torch
from common.model.layout import Layout
from common.model.slot import Slot

VERSION = 1  # version of the recipe below; any changed bit needs a new version
RESIDUAL = 4.0  # approximate size of the residual stream after the last layer
HEADS = 2.0  # size of an element of a query or a key, by the gains of its norm, or by its rows
BIAS = 0.25  # size of a bias beside what it is added to; as large as that, values would make the same token every step
NORMS = {"q_norm": HEADS, "k_norm": HEADS}  # mean of gains, 1 where not named; they differ from it by up to half


def pieces(layout: Layout, seed: int) -> "Iterator[tuple[int, torch.Tensor]]":
    """Yield (offset in the packed buffer, bf16 [n]) of every weight. layout: all in bf16.

    A matrix is uniform with variance 1 / fan_in, so that a normalized input gives outputs of standard deviation 1.
    Without a norm of heads the rows of queries and keys are HEADS times as large; biases are BIAS of their outputs. The
    2 * layers matrices that add to the residual stream, `o` and `down`, are scaled by RESIDUAL / sqrt(2 * layers), as
    in GPT-2 with RESIDUAL = 1, so that it grows equally at any depth. The embedding follows the first rule and is small
    against the sum of the layers: otherwise a tied head would choose the input token. Attention scores have a standard
    deviation of about 4: with flatter attention every step would choose the same token, which would hide a stale one.
    Only exactly rounded operations follow the raw random words (NumPy fixes SFC64's stream), so the bits do not depend
    on the machine's vector width or the libraries' versions.
    """
    words = np.random.SFC64(seed)
    for slot, mean, largest in _parts(layout):
        for start in range(0, slot.size, BLOCK):
            count = min(BLOCK, slot.size - start)  # a multiple of 8, like every row; one random word makes 4 weights
            uniform = torch.from_numpy(words.random_raw(count // 4).view(np.int16)).float()
            yield slot.offset + start, uniform.mul_(largest / 2**15).add_(mean).bfloat16()


def _parts(layout: Layout) -> Iterator[tuple[Slot, float, float]]:
    """(place, mean, largest distance from it) of the weights of each tensor, or of a part of it, in their order."""
    m = layout.model
    branch, heads = RESIDUAL / math.sqrt(2 * m.layers), m.query + m.kv
    for name, layer in layout.tensors():
        slot = layout.weight(name, layer)
        if name in ("qkv", "qkv_bias"):
            spread = math.sqrt(3 / m.hidden) if name == "qkv" else math.sqrt(3) * BIAS
            yield slot.rows(0, heads), 0.0, spread * (1.0 if m.qk_norm else HEADS)
            yield slot.rows(heads, m.kv), 0.0, spread
        elif len(slot.shape) == 1:
            mean = NORMS.get(name, 1.0)
            yield slot, mean, mean / 2
        else:
            yield slot, 0.0, math.sqrt(3 / slot.shape[1]) * (branch if name in ("o", "down") else 1.0)

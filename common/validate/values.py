"""Values that decide: histories and weights under which a wrong kernel differs from a right one."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from common.model.layout import Layout

LARGE_VALUE = 1000.0  # factor: gives an output some hundred times larger than its neighbors
LARGE_KEY = 256.0  # factor: gives scores of some hundreds, whose exp overflows fp32 unless the maximum is subtracted
SMALL_HEAD = 2.0**-6  # factor, exact in bf16: the mean square of a head falls from about 1 to some hundred times eps

History = Callable[
    [Tensor, torch.Generator], None
]  # changes a random history: [layers, 2, kv_heads, entries, head_dim]
Weights = Callable[[Tensor, Layout, torch.Generator], None]  # changes flat weights


def weights_of(kind: str, weights: Tensor, layout: Layout, seed: int) -> Tensor:
    """`weights` (flat bf16, [layout.weights_size]) changed as WEIGHTS[kind] does; a copy unless that is nothing."""
    if kind == ORDINARY:
        return weights
    changed = weights.clone()
    WEIGHTS[kind](changed, layout, torch.Generator().manual_seed(seed))
    return changed


def tensor(weights: Tensor, layout: Layout, name: str, layer: int | None = None) -> Tensor:
    """A view of one tensor of flat weights, in its shape."""
    slot = layout.weight(name, layer)
    return weights[slot.offset : slot.offset + slot.size].view(slot.shape)


def _large(history: Tensor, random: torch.Generator) -> None:
    entries = history.shape[3]
    if entries < 2:
        return
    a, b = torch.randperm(entries, generator=random)[:2].tolist()
    history[:, 0, :, a] *= LARGE_KEY
    history[:, 0, :, b] = -history[:, 0, :, a]  # opposite keys: for any query one of the two scores is positive
    history[:, 1, :, int(torch.randint(entries, (1,), generator=random))] *= LARGE_VALUE


def _equal(history: Tensor, random: torch.Generator) -> None:
    history[:, 0] = history[:, 0, :, :1].clone()


def _ties(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Equal logits and small heads, which no input could cause.

    The rows of the LM head become random pairs of equal rows, so that the largest logit ties; with an odd number of
    rows one stays single. In every layer the projection of one query head and of one key head is scaled by SMALL_HEAD,
    so that the eps of its norm matters.
    """
    rows, model = tensor(weights, layout, "lm_head"), layout.model
    order, half = torch.randperm(len(rows), generator=random), len(rows) // 2
    rows[order[half : 2 * half]] = rows[order[:half]]
    for layer in range(model.layers):
        heads = tensor(weights, layout, "qkv", layer).view(-1, model.head_dim, model.hidden)
        heads[torch.randint(model.heads, (1,), generator=random)] *= SMALL_HEAD
        heads[model.heads + torch.randint(model.kv_heads, (1,), generator=random)] *= SMALL_HEAD


def _last_words(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """The token is one of the last 512 words, which only an index beyond 2^16 reaches in a larger vocabulary."""
    tensor(weights, layout, "lm_head")[-512:] *= 16


ORDINARY = "ordinary"
HISTORIES: Mapping[str, History] = {
    ORDINARY: lambda history, random: None,
    "large keys and values": _large,
    "equal scores": _equal,
}
WEIGHTS: Mapping[str, Weights] = {
    ORDINARY: lambda weights, layout, random: None,
    "ties": _ties,
    "last words": _last_words,
}

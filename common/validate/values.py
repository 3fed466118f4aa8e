"""Adversarial values: histories and weights under which a wrong kernel differs from a right one."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from common.model.layout import Layout
from common.model.weights import recoded

LARGE_VALUE = 1000.0  # factor: gives an output some hundred times larger than its neighbors
LARGE_KEY = 256.0  # factor: gives scores of some hundreds; exp overflows fp32 unless the maximum is subtracted
SMALL_HEAD = 2.0**-6  # factor, exact in bf16: the mean square of a head falls from about 1 to some hundred times eps
FALLING = 20  # values of a head, each half of the one before: e4m3 has numbers down to 2^-17.8 of its largest
LARGE_GATES = {"post_norm": 8, "gate": 16, "up": 128, "lm_head": 2**17}  # factors
GRADED = 6  # sizes of gates, each twice the one before: from about 1 to where silu is its argument, or 0, in fp32
CHANNEL = 60.0  # value of a constant channel: a few times the size of all others together
TWINS = 9  # equal rows: four on both sides of the largest; one of five blocks seldom has all of one side
LATE = 128  # first position of the third chunk
# For a format of the cache: a number, half of its last place, and the number whose scale is a power of two.
HALVES = {"bf16": (1.0, 2.0**-8, 0.0), "fp8": (1.0, 2.0**-4, 1.75), "int8": (0.5, 2.0**-8, 127 / 128)}
KEY = 64.0  # element of an opposite key: its score is about -1000

# Changes a random history in place: [layers, 2, kv_heads, entries, head_dim].
History = Callable[[Tensor, torch.Generator], Any]
Weights = Callable[[Tensor, Layout, torch.Generator], None]  # changes flat weights


def weights_of(kind: str, weights: Tensor, layout: Layout, seed: int) -> Tensor:
    """`weights` (flat bf16, [layout.weights_size]) changed by WEIGHTS[kind]; a copy, unless unchanged.

    Matrices below bf16 are changed as bf16 ones and rounded again.
    """
    if kind == ORDINARY:
        return weights
    exact = Layout(layout.model.in_formats(kv=layout.model.kv_format)) if layout.scaled else layout
    changed = recoded(weights, layout, exact) if layout.scaled else weights.clone()
    WEIGHTS[kind](changed, exact, torch.Generator().manual_seed(seed))
    return recoded(changed, exact, layout) if layout.scaled else changed


def slowest(head_dim: int) -> int:
    """Index of the first element of the slowest rotating pair."""
    return head_dim // 2 - 1


def tensor(weights: Tensor, layout: Layout, name: str, layer: int | None = None) -> Tensor:
    """A view of one tensor of flat weights, in its shape."""
    return layout.weight(name, layer).of(weights)


def _large(history: Tensor, random: torch.Generator) -> None:
    """Two large keys in each layer and KV head, at different positions each: any warp may have the maximum."""
    entries = history.shape[3]
    if entries < 2:
        return
    for keys in (head for layer in history for head in layer[0]):
        a, b = torch.randperm(entries, generator=random)[:2].tolist()
        keys[a] *= LARGE_KEY
        keys[b] = -keys[a]  # opposite keys: for any query one of the two scores is positive
    history[:, 1, :, int(torch.randint(entries, (1,), generator=random))] *= LARGE_VALUE


def _late(history: Tensor, random: torch.Generator) -> None:
    """As `_large`, in the third chunk of positions and later: earlier positions then have almost no weight.

    All entries there form such pairs, since a query may be nearly orthogonal to one pair.
    """
    for pair in history[:, :, :, LATE:].split(2, dim=3):
        _large(pair, random)


def _equal(history: Tensor, random: torch.Generator) -> None:
    history[:, 0] = history[:, 0, :, :1].clone()


def _ties(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Equal logits and small heads, which no input could cause.

    The rows of the LM head become random groups of TWINS equal rows, so that the largest logit ties; the other rows
    are 0. In every layer the projection of one query head and of one key head is scaled by SMALL_HEAD, so that the eps
    of its norm matters, in a model with this norm.
    """
    rows, model = tensor(weights, layout, "lm_head"), layout.model
    for group in torch.randperm(len(rows), generator=random).split(TWINS):
        rows[group] = rows[group[0]].clone() if len(group) == TWINS else 0
    for layer in range(model.layers):
        heads = tensor(weights, layout, "qkv", layer).view(-1, model.head_dim, model.hidden)
        heads[torch.randint(model.heads, (1,), generator=random)] *= SMALL_HEAD
        heads[model.heads + torch.randint(model.kv_heads, (1,), generator=random)] *= SMALL_HEAD


def _last_words(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """The token is one of the last 512 words, beyond the reach of a 17-bit index in a larger vocabulary."""
    tensor(weights, layout, "lm_head")[-512:] *= 16


def _next_word(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """The token is the word behind the one before it: many steps choose it in each warp in turn, not by chance.

    The residual stream is the embedding, nearly, and rows of the LM head are the embedding of the word before.
    """
    for layer in range(layout.model.layers):
        for name in ("o", "down"):
            tensor(weights, layout, name, layer).mul_(2.0**-6)
    tensor(weights, layout, "lm_head").copy_(tensor(weights, layout, "embed").roll(1, 0))


def _opposite(history: Tensor, random: torch.Generator) -> None:
    """Keys opposite to the queries of the weights "low scores", each by a little more or less."""
    keys, pair = history[:, 0], slowest(history.shape[-1])
    keys.zero_()
    size = -KEY * (1 + 0.01 * torch.randn(keys[..., pair].shape, generator=random))
    keys[..., pair] = size.to(keys.dtype)


def _constant_channel(weights: Tensor, layout: Layout) -> None:
    """Set the first channel of the residual stream to CHANNEL for every token, after every layer."""
    tensor(weights, layout, "embed")[:, 0] = CHANNEL
    for layer in range(layout.model.layers):
        tensor(weights, layout, "o", layer)[0] = 0
        tensor(weights, layout, "down", layer)[0] = 0


def _negative_logits(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Make all logits negative, below fp16: every word has a negative weight for the constant channel."""
    _constant_channel(weights, layout)
    tensor(weights, layout, "lm_head")[:, 0] = -1
    tensor(weights, layout, "lm_head").mul_(2.0**14)


def _low_scores(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Queries along the first element of the slowest rotating pair, and keys opposite to them.

    Without a norm of heads the element is as large as such a norm would make it.
    """
    _constant_channel(weights, layout)
    model = layout.model
    size = 1 if model.qk_norm else 16 * (model.head_dim / model.hidden) ** 0.5  # the channel is about sqrt(hidden)
    for layer in range(model.layers):
        heads = tensor(weights, layout, "qkv", layer).view(-1, model.head_dim, model.hidden)
        heads[: model.heads + model.kv_heads] = 0
        heads[: model.heads, slowest(model.head_dim), 0] = size
        heads[model.heads : model.heads + model.kv_heads, slowest(model.head_dim), 0] = -size
        tensor(weights, layout, "qkv_bias", layer)[: model.query + model.kv] = 0
        for name in ("q_norm", "k_norm"):
            tensor(weights, layout, name, layer).mul_(8)


def _large_gates(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Gates beyond 88 on both sides: the exponential overflows fp32, or vanishes. Products and logits are beyond fp16.

    Gains have both signs, and those behind attention are large.
    """
    for name, layer in layout.tensors():
        each = tensor(weights, layout, name, layer)
        if name.endswith("norm"):
            each *= torch.randint(2, each.shape, generator=random) * 2 - 1
        each *= LARGE_GATES.get(name, 1)


def _small_inputs(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """A residual stream so small that eps decides the norms, in a model with a large eps.

    The values of a head become smaller from one to the next, down to below the smallest normal number of e4m3; those of
    the first are zero, unless the model has a bias.
    """
    model = layout.model
    tensor(weights, layout, "embed").mul_(2.0**-4)
    for layer in range(model.layers):
        rows = tensor(weights, layout, "qkv", layer)[model.query + model.kv :]
        rows *= 2.0 ** -(torch.arange(model.kv) % FALLING)[:, None]
        rows[: model.head_dim] = 0
        for name in ("o", "down"):
            tensor(weights, layout, name, layer).mul_(2.0**-6)


def _half_way(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Values exactly half way between two numbers of the cache, in a model with eps = 2^-5.

    The residual stream is -1, 0 and 1 with a mean square of 1 - 2^-5, so that its norm is exact. A value is the sum of
    two channels, one of them times a half of the last place, or thrice that: with equal signs it is half way, and the
    even neighbor is below it for one factor and above it for the other. Below bf16 the first value of a head is the
    largest, so that the scale is a power of two.

    Gates have GRADED sizes, and their products one: a large product would make the tolerance wide for moderate gates.
    """
    model, (large, half, largest) = layout.model, HALVES[layout.cache.format.kind]
    sizes = 2.0 ** (torch.arange(model.intermediate) % GRADED)[:, None]
    embed = tensor(weights, layout, "embed")
    signs = torch.randint(2, embed.shape, generator=random) * 2.0 - 1
    zeros = torch.rand(embed.shape, generator=random).argsort(1) < model.hidden // 32
    embed.copy_(signs.masked_fill(zeros, 0))
    for layer in range(model.layers):
        tensor(weights, layout, "input_norm", layer).fill_(1)
        for name in ("o", "down"):
            tensor(weights, layout, name, layer).zero_()
        tensor(weights, layout, "gate", layer).mul_(sizes)
        tensor(weights, layout, "up", layer).div_(sizes)
        rows = tensor(weights, layout, "qkv", layer)[model.query + model.kv :]
        rows.zero_()
        tensor(weights, layout, "qkv_bias", layer)[model.query + model.kv :] = 0
        for row, each in enumerate(rows):
            whole, part = torch.randperm(model.hidden, generator=random)[:2].tolist()
            each[whole], each[part] = large, (1 + 2 * (row % 2)) * half
            if largest and row % model.head_dim == 0:
                each[whole], each[part] = largest, 0


def _twins(weights: Tensor, layout: Layout, random: torch.Generator) -> None:
    """Nearly tied logits: each row of the LM head TWINS times, the middle one with a larger last bit of a small weight.

    Of the best logits neither the first nor the last is the largest, whichever block has them. Other rows are zero.
    """
    _constant_channel(weights, layout)
    rows = tensor(weights, layout, "lm_head")
    order, groups = torch.randperm(len(rows), generator=random), len(rows) // TWINS
    twins = order[: TWINS * groups].view(groups, TWINS).sort(1).values
    rows[twins] = rows[twins[:, :1]]
    rows[order[TWINS * groups :]] = 0
    rows[twins, 0] = 2.0**-16
    rows[twins[:, TWINS // 2], 0] = 2.0**-16 * (1 + 2.0**-7)


ORDINARY = "ordinary"
HISTORIES: Mapping[str, History] = {
    ORDINARY: lambda history, random: None,
    "large keys and values": _large,
    "late keys": _late,
    "equal scores": _equal,
    "opposite keys": _opposite,
    "nothing": lambda history, random: history.zero_(),
    "one side": lambda history, random: history.add_(4),
}
WEIGHTS: Mapping[str, Weights] = {
    ORDINARY: lambda weights, layout, random: None,
    "ties": _ties,
    "last words": _last_words,
    "next word": _next_word,
    "negative logits": _negative_logits,
    "low scores": _low_scores,
    "large gates": _large_gates,
    "small inputs": _small_inputs,
    "half way": _half_way,
    "twins": _twins,
}

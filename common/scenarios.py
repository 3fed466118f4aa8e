"""What a kernel is put through: fresh random histories, adversarial ones, tile edges, and several steps in a row."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from common.layout import Layout
from common.model import Model
from common.reference import rms_norm

EDGES = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64)  # first positions, and those around the tile sizes in use
LARGE_VALUE = 1000.0  # an output some hundred times larger than its neighbours
LARGE_KEY = 256.0  # a score of some hundreds: exp of it overflows fp32 unless the maximum is taken off first

FAINT = 2.0**-6  # exact in bf16; a head of about 1 becomes one whose mean square is some hundred times eps


@dataclass(frozen=True)
class Scenario:
    """One start and how many steps to decode from it.

    ids: the tokens that are given, at least position + 1; those beyond `position` are a prompt that the kernel must
    not overwrite. history: bf16, the layout's cache shape, NaN from `position` on; None at position 0.
    """

    name: str
    position: int
    ids: tuple[int, ...]
    history: Tensor | None
    steps: int = 1


def scenarios(model: Model, seed: int, weights: Tensor, quick: bool = False) -> Iterator[Scenario]:
    """Build scenarios one by one (a history can be large); the same seed gives the same ones.

    weights: flat bf16, [layout.weights_size]; random keys are RMS-normalised and scaled by the model's own k_norm, as
    true keys are. quick: three scenarios, five steps, for models where a step takes seconds.
    """
    random = torch.Generator().manual_seed(seed)
    layout = Layout(model)

    def below(limit: int) -> int:
        return int(torch.randint(max(limit, 1), (1,), generator=random))

    def scenario(name: str, position: int, steps: int = 1, given: int = 1) -> Scenario:
        ids = torch.randint(model.vocab, (position + given,), generator=random).tolist()
        history = _history(layout, position, weights, random) if position else None
        return Scenario(name, position, tuple(ids), history, steps)

    def outliers() -> Scenario:
        start = scenario("large keys and values", min(2 + below(model.positions - 2), model.positions - 1))
        if start.position >= 2:  # opposite keys: whatever the query is, one of the two scores is large and positive
            a, b = torch.randperm(start.position, generator=random)[:2].tolist()
            start.history[:, 0, :, a] *= LARGE_KEY
            start.history[:, 0, :, b] = -start.history[:, 0, :, a]
            start.history[:, 1, :, below(start.position)] *= LARGE_VALUE
        return start

    def equal_scores() -> Scenario:
        start = scenario("equal scores", below(model.positions))
        if start.position:
            start.history[:, 0] = start.history[:, 0, :, :1].clone()
            start.history[:, 0, :, start.position :] = torch.nan
        return start

    some = min(3, model.positions)
    yield scenario("position 0", 0)
    yield scenario(f"{some} steps", below(model.positions - some + 1), steps=some)
    yield outliers()
    if quick:
        return
    last = model.positions - 1
    for position in sorted({edge for edge in EDGES[1:] if edge < last} | {last} - {0}):
        yield scenario(f"position {position}", position)
    yield equal_scores()
    if model.positions >= 4:
        yield scenario("prompt of 3", 0, steps=4, given=3)
    if model.positions >= 18:
        yield scenario("3 steps over a tile edge", 15, steps=3)


def adversarial_weights(weights: Tensor, layout: Layout, seed: int) -> Tensor:
    """A copy of the weights that brings about what no input can.

    weights: flat bf16, [layout.weights_size]. Every row of the LM head gets a twin, so that the largest logit always
    ties: twins are random pairs, and where the number of rows is odd one stays alone. In every layer one query and one
    key head become so faint that the eps of their norm counts.
    """
    random, weights = torch.Generator().manual_seed(seed), weights.clone()

    def matrix(name: str, layer: int | None = None) -> Tensor:
        slot = layout.weight(name, layer)
        return weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    rows = matrix("lm_head")
    order, half = torch.randperm(len(rows), generator=random), len(rows) // 2
    rows[order[half : 2 * half]] = rows[order[:half]]
    model = layout.model
    for layer in range(model.layers):
        heads = matrix("qkv", layer).view(-1, model.head_dim, model.hidden)
        heads[torch.randint(model.heads, (1,), generator=random)] *= FAINT
        heads[model.heads + torch.randint(model.kv_heads, (1,), generator=random)] *= FAINT
    return weights


def _history(layout: Layout, position: int, weights: Tensor, random: torch.Generator) -> Tensor:
    history = torch.full(layout.cache.shape, torch.nan, dtype=torch.bfloat16)
    for layer, (keys, values) in enumerate(history[:, :, :, :position]):
        slot = layout.weight("k_norm", layer)
        scale = weights[slot.offset : slot.offset + slot.size].float()
        keys.copy_(rms_norm(torch.randn(keys.shape, generator=random), scale, layout.model.rms_eps))
        values.copy_(torch.randn(values.shape, generator=random))
    return history

"""Scenarios of a validation: random histories, adversarial ones, positions at tile edges, several steps in a row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import rms_norm

EDGES = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64)  # first positions, and those around the tile sizes in use
LARGE_VALUE = 1000.0  # factor: gives an output some hundred times larger than its neighbors
LARGE_KEY = 256.0  # factor: gives scores of some hundreds, whose exp overflows fp32 unless the maximum is subtracted
SMALL_HEAD = 2.0**-6  # factor, exact in bf16: the mean square of a head falls from about 1 to some hundred times eps


@dataclass(frozen=True)
class Scenario:
    """A start and the number of steps to decode from it.

    position: the first to decode. ids: given token ids, at least position + 1; those after `position` are a prompt that
    the kernel must not overwrite. history: bf16, the layout's cache shape, NaN from `position` on; None at position 0.
    near_ties: two large scores compete; where they are almost equal, fp32 runs may differ widely with any weights.
    """

    name: str
    position: int
    ids: tuple[int, ...]
    history: Tensor | None
    steps: int = 1
    near_ties: bool = False


def scenarios(model: Model, seed: int, weights: Tensor, quick: bool = False) -> Iterator[Scenario]:
    """Yield scenarios one by one, since a history can be large; the same seed gives the same scenarios.

    weights: flat bf16, [layout.weights_size]; random keys are RMS-normalized and scaled by the model's own k_norm
    weight, as real keys are. quick: only three scenarios with five steps, for models where a step takes seconds.
    """
    return (make() for _, make in _planned(model, seed, weights, quick))


def steps_in_all(model: Model, quick: bool = False) -> int:
    """Steps of all `scenarios` together, without building one."""
    return sum(steps for steps, _ in _planned(model, 0, torch.empty(0), quick))


def _planned(model: Model, seed: int, weights: Tensor, quick: bool) -> list[tuple[int, Callable[[], Scenario]]]:
    """For each scenario its number of steps, and what builds it; they must be built in this order, each once."""
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
        history = start.history
        if history is not None and start.position >= 2:
            a, b = torch.randperm(start.position, generator=random)[:2].tolist()
            history[:, 0, :, a] *= LARGE_KEY
            history[:, 0, :, b] = -history[:, 0, :, a]  # opposite keys: for any query one of the two scores is positive
            history[:, 1, :, below(start.position)] *= LARGE_VALUE
        return replace(start, near_ties=True)

    def equal_scores() -> Scenario:
        start = scenario("equal scores", below(model.positions))
        if start.history is not None:
            start.history[:, 0] = start.history[:, 0, :, :1].clone()
            start.history[:, 0, :, start.position :] = torch.nan
        return start

    several, last = min(3, model.positions), model.positions - 1
    planned = [
        (1, lambda: scenario("position 0", 0)),
        (several, lambda: scenario(f"{several} steps", below(model.positions - several + 1), steps=several)),
        (1, outliers),
    ]
    if quick:
        return planned
    edges = sorted({edge for edge in EDGES[1:] if edge < last} | {last} - {0})
    planned += [(1, partial(scenario, f"position {position}", position)) for position in edges]
    planned += [(1, equal_scores)]
    if model.positions >= 4:
        planned += [(4, lambda: scenario("prompt of 3", 0, steps=4, given=3))]
    if model.positions >= 18:
        planned += [(3, lambda: scenario("3 steps over a tile edge", 15, steps=3))]
    return planned


def adversarial_weights(weights: Tensor, layout: Layout, seed: int) -> Tensor:
    """A copy of the weights with equal logits and small heads, which no input could cause.

    weights: flat bf16, [layout.weights_size]. The rows of the LM head become random pairs of equal rows, so that the
    largest logit ties; with an odd number of rows one stays single. In every layer the projection of one query head and
    of one key head is scaled by SMALL_HEAD, so that the eps of its norm matters.
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
        heads[torch.randint(model.heads, (1,), generator=random)] *= SMALL_HEAD
        heads[model.heads + torch.randint(model.kv_heads, (1,), generator=random)] *= SMALL_HEAD
    return weights


def _history(layout: Layout, position: int, weights: Tensor, random: torch.Generator) -> Tensor:
    history = torch.full(layout.cache.shape, torch.nan, dtype=torch.bfloat16)
    for layer, (keys, values) in enumerate(history[:, :, :, :position]):
        slot = layout.weight("k_norm", layer)
        scale = weights[slot.offset : slot.offset + slot.size].float()
        keys.copy_(rms_norm(torch.randn(keys.shape, generator=random), scale, layout.model.rms_eps))
        values.copy_(torch.randn(values.shape, generator=random))
    return history

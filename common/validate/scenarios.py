"""Scenarios of a validation: random histories, adversarial ones, positions at tile edges, several steps in a row."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from common.devices.kv_cache import KvCache
from common.devices.protocol import Session
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import Past, digest_of, rms_norm
from common.validate.values import HISTORIES, ORDINARY

EDGES = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64)  # first positions, and positions around the tile sizes in use
LARGE = "large keys and values"  # one of HISTORIES
# Period of a random history in positions: drawing takes long. A prime, so that no power of two is a multiple of it: a
# position off by a tile, a chunk or the width of a word has other entries.
PERIOD = 1021
NEAR_TIES = (LARGE, "late keys")
MOST_STEPS = 4  # in a row


@dataclass(frozen=True)
class Start:
    """A scenario before its random values are drawn: the first position to decode, and the number of steps.

    given: number of given ids, from `position` on. history: one of HISTORIES. barriers: grid barriers passed before, an
    even number.
    """

    position: int = 0
    steps: int = 1
    given: int = 1
    history: str = ORDINARY
    barriers: int = 0

    @property
    def name(self) -> str:
        steps = f"{self.steps} steps from " if self.steps > 1 else ""
        given = f", prompt of {self.given}" if self.given > 1 else ""
        kind = f", {self.history}" if self.history != ORDINARY else ""
        return f"{steps}position {self.position}{given}{kind}" + (f", {self.barriers} barriers" * bool(self.barriers))


@dataclass(frozen=True)
class Scenario:
    """A start and the number of steps to decode from it.

    position: the first to decode. ids: given token ids, at least position + 1; ids after `position` are a prompt that
    the kernel must not overwrite. history: bf16, [layers, 2, kv_heads, positions, row], of the positions below
    `position` and perhaps more, rounded to the format of the cache; None at position 0.
    near_ties: two large scores compete; if they are almost equal, fp32 runs may differ widely with any weights.
    barriers: as in Start. digest: of the history's inputs; empty: of its content, which takes long.
    held: the history in the memory of a device.
    """

    name: str
    position: int
    ids: tuple[int, ...]
    history: Tensor | None
    steps: int = 1
    near_ties: bool = False
    barriers: int = 0
    digest: bytes = b""
    held: KvCache | None = None

    def on(self, session: Session) -> "Scenario":
        """Copy with the history in the session's device memory: moved once, for all resets and sessions there."""
        if self.history is None or self.held:
            return self
        return replace(self, held=session.cache.hold(self.history[..., : self.position, :]))

    def past(self, device: str) -> Past:
        """The history as torch reads it on `device`: on "cuda" if a session holds it there."""
        if self.history is None:
            return Past((), b"")
        if not self.digest:
            return Past.of(self.history[..., : self.position, :])
        return Past((self.held.tensor() if self.held and device == "cuda" else self.history,), self.digest)


def scenarios(model: Model, seed: int, weights: Tensor, quick: bool = False, tokens: int = 1) -> Iterator[Scenario]:
    """Yield scenarios one by one, since a history can be large; the same seed gives the same scenarios.

    weights: flat bf16, [layout.weights_size]. quick: only three scenarios with five steps, for models where a step
    takes seconds. tokens: of a step. Raises LabError if the cache has too few positions for them.
    """
    random = torch.Generator().manual_seed(seed)
    return drawn(planned(model, random, quick, tokens), Layout(model), weights, random)


def steps_in_all(model: Model, quick: bool = False, tokens: int = 1) -> int:
    """Steps of all `scenarios` together, without building one."""
    return sum(start.steps for start in planned(model, torch.Generator(), quick, tokens))


def drawn(
    starts: Iterator[Start] | list[Start] | tuple[Start, ...], layout: Layout, weights: Tensor, random: torch.Generator
) -> Iterator[Scenario]:
    """The scenarios of `starts`, with random ids and histories.

    weights: flat bf16, [layout.weights_size]; random keys are as large as the model's own, see `_keys`.
    """
    for start in starts:
        ids = _ids(layout.model.vocab, start.position + start.given, random)
        if start.given > 1:  # a prompt ends with one id twice, so that no step may keep what the one before had
            ids = (*ids[:-1], ids[-2])
        history, digest = None, b""
        if start.position:
            history = _history(layout, start.position, weights, random)
            HISTORIES[start.history](history, random)
            # The history is decided by its first period, its kind, and the earlier draws.
            decided = history[..., :PERIOD, :], random.get_state()
            digest = digest_of(f"{start.position} {start.history}".encode(), *decided)
            history = torch.stack([layout.cache.format.encode(layer) for layer in history])
        near_ties = start.history in NEAR_TIES
        yield Scenario(start.name, start.position, ids, history, start.steps, near_ties, start.barriers, digest)


def _ids(vocab: int, count: int, random: torch.Generator) -> tuple[int, ...]:
    """`count` ids of three, so that drafts are found again; none is the one before it, unless there is no other."""
    few = [0, *(1 + torch.randperm(vocab - 1, generator=random)[:2]).tolist()]
    steps = torch.randint(1, max(len(few), 2), (count,), generator=random)
    return tuple(few[place] for place in (steps.cumsum(0) % len(few)).tolist())


def planned(model: Model, random: torch.Generator, quick: bool, tokens: int = 1) -> list[Start]:
    """The starts of `scenarios`, in this order. random: chooses some of their positions.

    tokens: of a step: all may be accepted, in each of up to MOST_STEPS steps. Raises LabError if too few positions are
    left.
    """
    positions = model.positions - MOST_STEPS * (tokens - 1)
    if positions < 1:
        raise LabError(
            f"{tokens} tokens a step do not fit a cache of {model.positions} positions",
            f"give fewer tokens, or model.positions of at least {MOST_STEPS * (tokens - 1) + 1}",
        )

    def below(limit: int) -> int:
        return int(torch.randint(max(limit, 1), (1,), generator=random))

    several, last = min(3, positions), positions - 1
    planned = [
        Start(),
        Start(below(positions - several + 1), several),
        Start(min(2 + below(positions - 2), last), history=LARGE),
    ]
    if quick:
        return planned
    planned += [Start(edge) for edge in sorted({edge for edge in EDGES[1:] if edge < last} | {last} - {0})]
    planned += [Start(below(positions), history="equal scores")]
    if positions >= MOST_STEPS:
        planned += [Start(0, steps=MOST_STEPS, given=3)]
    if positions >= 18:
        planned += [Start(15, steps=3)]
    return planned


def _history(layout: Layout, position: int, weights: Tensor, random: torch.Generator) -> Tensor:
    *outer, _, head_dim = layout.cache.shape
    history = torch.empty(*outer, position, head_dim, dtype=torch.bfloat16)
    for layer, (keys, values) in enumerate(history[..., :PERIOD, :]):
        keys.copy_(_keys(layout, layer, torch.randn(keys.shape, generator=random), weights))
        values.copy_(torch.randn(values.shape, generator=random))
    for first in range(PERIOD, position, PERIOD):
        history[..., first : first + PERIOD, :] = history[..., : min(PERIOD, position - first), :]
    return history


def _keys(layout: Layout, layer: int, random: Tensor, weights: Tensor) -> Tensor:
    """Keys as the model's own are, of normal `random` numbers: [kv_heads, positions, head_dim].

    RMS-normalized and scaled by its k_norm. Without this norm: as its rows of k and their bias make them of an input
    whose elements are independent.
    """
    m = layout.model
    if m.qk_norm:
        return rms_norm(random, layout.weight("k_norm", layer).of(weights).float(), m.rms_eps)
    rows = layout.weight("qkv", layer).rows(m.query, m.kv).of(weights).float()
    gained = rows * layout.weight("input_norm", layer).of(weights).float()
    keys = random * gained.norm(dim=1).view(m.kv_heads, 1, m.head_dim)
    if m.qkv_bias:
        keys += layout.weight("qkv_bias", layer).rows(m.query, m.kv).of(weights).float().view(m.kv_heads, 1, m.head_dim)
    return keys

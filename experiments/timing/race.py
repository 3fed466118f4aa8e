"""One stack against its parent on a GPU: at each position, and over a whole generation, with the outputs checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from common.config import Timing
from common.devices import Session
from common.errors import Crashed
from common.gpu import Gpu
from common.layout import Layout
from common.snapshot import Snapshot, differences
from experiments.timing.bandwidth import Ceiling, read_ceiling
from experiments.timing.measure import Contender, Measurement, measure


@dataclass(frozen=True)
class Racer:
    """A compiled stack, innermost variant first, and its buffers."""

    stack: tuple[str, ...]
    session: Session


def race(
    child: Racer, parent: Racer, timing: Timing, seed: int, on_detail: Callable[[str], None]
) -> tuple[list[Measurement], Measurement]:
    """Measure `child` and `parent` in turn; the baseline, which is its own parent, races alone.

    Returns the child's latency at every position of `timing`, and the generation of `timing.tokens` tokens from
    position 0. Raises Crashed when timed launches leave other outputs than untimed ones.
    """
    layout = child.session.layout
    alone = child.stack == parent.stack

    def run(position: int, steps: int) -> Measurement:
        steps = min(steps, layout.model.positions - position)
        contenders = [] if alone else [_enter(parent, None, position, steps, seed)]
        contenders.append(_enter(child, None if alone else parent.stack, position, steps, seed))

        def on_round(done: int, most: int) -> None:
            on_detail(f"position {position}, round {done} of at most {most}")

        return measure(contenders, layout.model, position, steps, timing, _ceiling(), Gpu.current(), on_round)[-1]

    return [run(position, timing.steps) for position in timing.at(layout.model)], run(0, timing.tokens)


def _enter(racer: Racer, parent: tuple[str, ...] | None, position: int, steps: int, seed: int) -> Contender:
    """A contender at `position`, with what its timed launches must leave behind."""
    session = racer.session
    ids, history = _start(session.layout, position, seed)
    session.reset(ids, position, history)
    session.run(steps)
    want = Snapshot.of(session)
    session.reset(ids, position, history)

    def check() -> None:
        found = next(
            differences(Snapshot.of(session), want, frozenset(), "timed launches differ from untimed ones"), None
        )
        if found:
            raise Crashed(f"after timing, {found}", "look for state that a launch leaves behind for the next one")

    return Contender(racer.stack, session, parent, check)


def _start(layout: Layout, position: int, seed: int) -> tuple[list[int], torch.Tensor | None]:
    """Token ids 0..position, and standard normal keys and values: bf16, the cache's shape cut at `position`."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(layout.model.vocab, (position + 1,), generator=random).tolist()
    layers, sides, heads, _, width = layout.cache.shape
    if position == 0:
        return ids, None
    return ids, torch.randn(layers, sides, heads, position, width, generator=random).bfloat16()


@cache
def _ceiling() -> Ceiling:
    """The read-only bandwidth of this GPU, measured once a run."""
    return read_ceiling()

"""Timing of one stack and its parent on a GPU: at each position and over a whole generation, with outputs checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from common.config.run_config import Timing
from common.devices.nvml import Gpu
from common.devices.protocol import Session
from common.errors import Crashed
from common.model.layout import Layout
from common.validate.snapshot import Snapshot, bit_differences
from experiments.show.row import STOPPED
from experiments.timing.bandwidth import Ceiling, read_ceiling
from experiments.timing.measure import Measurement, TimedKernel, TimedSession, measure


@dataclass(frozen=True)
class Candidate:
    """A compiled stack, innermost variant first, and its buffers."""

    stack: tuple[str, ...]
    session: Session


def time_pair(
    child: Candidate,
    parent: Candidate,
    timing: Timing,
    seed: int,
    on_detail: Callable[[str], None],
    beat: float | None = None,
) -> tuple[list[Measurement], Measurement | None]:
    """Measure `child` and `parent`, interleaved; a stack that is its own parent (the baseline) is measured alone.

    Returns the child's latency at every position of `timing`, and over a generation of `timing.tokens` tokens from
    position 0; no generation where a latency is STOPPED, being longer than `beat`. Raises Crashed when timed launches
    leave other outputs than untimed ones.
    """
    layout = child.session.layout
    alone = child.stack == parent.stack

    def run(position: int, steps: int, beat: float | None = None) -> Measurement:
        steps = min(steps, layout.model.positions - position)
        kernels = [] if alone else [_prepare(parent, None, position, steps, seed)]
        kernels.append(_prepare(child, None if alone else parent.stack, position, steps, seed))

        def on_round(done: int, most: int) -> None:
            on_detail(f"position {position}, round {done} of at most {most}")

        return measure(kernels, layout.model, position, steps, timing, _ceiling(), Gpu.current(), on_round, beat)[-1]

    latencies = [run(position, timing.steps, beat) for position in timing.at(layout.model)]
    stopped = any(latency.verdict == STOPPED for latency in latencies)
    return latencies, None if stopped else run(0, timing.tokens)


def _prepare(candidate: Candidate, parent: tuple[str, ...] | None, position: int, steps: int, seed: int) -> TimedKernel:
    """A kernel reset to `position`; its check compares the outputs of timed launches with those of an untimed run."""
    session = candidate.session
    assert isinstance(session, TimedSession)  # of a GPU; the host device is never timed
    ids, history = _start(session.layout, position, seed)
    session.reset(ids, position, history)
    session.run(steps)
    want = Snapshot.of(session)
    session.reset(ids, position, history)

    def check() -> None:
        found = next(
            bit_differences(Snapshot.of(session), want, frozenset(), "timed launches differ from untimed ones"), None
        )
        if found:
            raise Crashed(f"after timing, {found}", "look for state that one launch passes on to the next")

    return TimedKernel(candidate.stack, session, parent, check)


def _start(layout: Layout, position: int, seed: int) -> tuple[list[int], torch.Tensor | None]:
    """Ids of the tokens at positions 0 to `position`; normal keys and values, bf16, the cache's shape up to there."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(layout.model.vocab, (position + 1,), generator=random).tolist()
    layers, sides, heads, _, width = layout.cache.shape
    if position == 0:
        return ids, None
    return ids, torch.randn(layers, sides, heads, position, width, generator=random).bfloat16()


@cache
def _ceiling() -> Ceiling:
    """The read-only bandwidth of this GPU, measured once per process."""
    return read_ceiling()

"""Bytes between the host and the GPU, counted on the stand-in: of a cache only what a step has written moves.

A cache of the longest context is 1.9 GB; a validation that copies it for each comparison takes longer than its limit.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from standin import installed

from common.compile.source import build
from common.config.run_config import Timing
from common.model.layout import Layout
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import Start, drawn
from common.validate.tolerances import ReferenceSteps

pytestmark = pytest.mark.cpu
AT, STEPS = 2500, 2


@pytest.fixture
def moved(cpu_cache, monkeypatch):
    """Bytes by direction, on a fresh stand-in."""
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    counted = Counter()
    with installed():
        import cupy
        from cupy.cuda import runtime

        get, write, copy = cupy.ndarray.get, cupy.ndarray._write, runtime.memcpy2DAsync

        def counted_get(array, *arguments, **named):
            counted["to the host"] += array.nbytes
            return get(array, *arguments, **named)

        def counted_write(array, what, *arguments):
            counted["to the GPU"] += array.nbytes if what.startswith("copy to the GPU") else 0
            return write(array, what, *arguments)

        def counted_copy(dst, dpitch, src, spitch, width, height, *rest):
            to, of = (runtime._rows(at, pitch, width, height)[0] for at, pitch in ((dst, dpitch), (src, spitch)))
            counted["to the GPU"] += width * height if to and not of else 0
            counted["to the host"] += width * height if of and not to else 0
            return copy(dst, dpitch, src, spitch, width, height, *rest)

        monkeypatch.setattr(runtime, "memcpy2DAsync", counted_copy)
        monkeypatch.setattr(cupy.ndarray, "get", counted_get)
        monkeypatch.setattr(cupy.ndarray, "_write", counted_write)
        yield counted


@pytest.fixture
def opened(moved, tiny, cpu_cache, seed):
    """(session, another, reference, layout) of a model with a cache far larger than all its other buffers."""
    from common.devices.cuda import CudaDevice

    model = replace(tiny, positions=AT + 100)
    layout, weights = Layout(model), load("synthetic", model, None, cpu_cache, seed)[2].flat
    device = CudaDevice()
    program = device.compile(build([], model))
    sessions = [device.session(program, weights, 3) for _ in range(2)]
    moved.clear()
    yield *sessions, ReferenceSteps(layout, weights), layout
    for session in sessions:
        session.close()


def test_a_validation_moves_the_history_once_and_of_the_cache_only_entries(moved, opened, seed):
    session, parent, reference, layout = opened
    weights = reference.weights
    (start,) = drawn([Start(AT, STEPS)], layout, weights, torch.Generator().manual_seed(seed))
    verdict = validate(session, weights, [start], seed, reference=reference, parent=parent)
    assert verdict.passed, verdict
    snapshots = 1 + 3 * STEPS + 1  # after a reset, of two runs step by step and the parent's, and of a queued one
    check(moved, layout, histories=1, resets=3 + STEPS, snapshots=snapshots)


def test_a_measurement_moves_each_of_its_two_histories_once(moved, opened, monkeypatch, seed):
    from experiments.timing import paired
    from experiments.timing.bandwidth import Ceiling
    from experiments.timing.measure import Kernel

    session, other, reference, layout = opened
    monkeypatch.setattr(paired, "_ceiling", lambda: Ceiling("none", 1e15, 1, 1))
    rounds = 2
    timing = Timing(1, STEPS, rounds, rounds, 0.5, 1, (AT,), ())
    child, parent = Kernel(("child",), session), Kernel((), other)
    paired.time_pair(child, parent, reference, timing, seed, lambda text: None, beat=0)
    check(moved, layout, histories=2, resets=2 * 3, snapshots=2 * (2 * 2 + 1 + rounds))


def check(moved: Counter, layout: Layout, histories: int, resets: int, snapshots: int) -> None:
    """Nothing large but the histories moves: scratch and state (twice at a reset), and the entries of some steps."""
    others = 4 * (layout.scratch_size + layout.state_size) + 4 * STEPS * layout.cache.size // layout.model.positions
    history = 2 * layout.cache.size // layout.model.positions * AT
    assert history > others, "the bounds say nothing"
    assert histories * history <= moved["to the GPU"] < histories * history + 2 * resets * others
    assert moved["to the host"] < snapshots * others

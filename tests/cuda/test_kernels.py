"""Kernels on a GPU: the same scenarios, reference and tolerances as on the PTX device."""

from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from composed import STACKS, VARIANTS, Composed, compare_bits
from in_child import device, in_child, opened
from sampled import sampled, seed_for

from common.compile.source import build
from common.compile.target import STATIC_SHARED
from common.errors import Refused
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import scenarios
from common.validate.snapshot import Snapshot, bit_differences
from common.validate.tolerances import ReferenceSteps

pytestmark = pytest.mark.cuda
EVERY = [*VARIANTS, *STACKS]
SMALL = sampled(product(EVERY, ("tiny", "odd")), 2)


def weights_of(model: Model, seed: int, folder: Path) -> torch.Tensor:
    return load("synthetic", model, None, folder, seed)[2].flat


def prove(
    composed: Composed,
    model: Model,
    weights: torch.Tensor,
    seed: int,
    quick: bool,
    grid: int | None,
    reference: ReferenceSteps | None = None,
    threads: int = 256,
) -> None:
    """The stack is right, and has the bits of the stack that it must equal."""
    source, root = composed.source(model, threads), composed.root.source(model, threads)
    with opened(source, weights, grid) as session, opened(root, weights, grid) as other:
        verdict = validate(
            session,
            weights,
            scenarios(model, seed, weights, quick, tokens=session.layout.tokens),
            seed,
            reference=reference,
        )
        assert verdict.passed, verdict
        starts = scenarios(model, seed, weights, quick=True, tokens=session.layout.tokens)
        found = compare_bits(session, other, starts)
        assert found is None, f"{found}, seed {seed}"


@pytest.mark.parametrize(("composed", "shape"), SMALL, ids=str)
@in_child()
def test_small_models(tiny, odd, cpu_cache, composed, shape, quick, grid, seed):
    model = {"tiny": tiny, "odd": odd}[shape]
    prove(composed, model, weights_of(model, seed, cpu_cache), seed, quick, grid)


@cache
def steps(model: Model, folder: Path) -> ReferenceSteps:
    """For all stacks at full size: they share the reference's steps, which take longer than the kernels."""
    return ReferenceSteps(Layout(model), weights_of(model, 0, folder))


@pytest.mark.parametrize("composed", sampled(EVERY, 1), ids=str)
@in_child()
def test_full_size(full, cpu_cache, composed, grid):
    reference = steps(full, cpu_cache)
    prove(composed, full, reference.weights, seed_for("kernels"), True, grid, reference)


@in_child()
def test_shared_memory_above_48_kb(tiny, cpu_cache, grid, seed):
    greedy = Composed(("cp_async",), {"stages": 4, "tile": 2})
    assert device().compile(greedy.source(tiny, threads=512)).dynamic_shared > STATIC_SHARED
    prove(greedy, tiny, weights_of(tiny, seed, cpu_cache), seed, True, grid, threads=512)


@pytest.mark.parametrize(("blocks", "threads"), sampled(product((1, 3, 8), (32, 96, 256, 1024)), 2))
@in_child()
def test_any_grid_and_block(tiny, cpu_cache, blocks, threads, seed):
    weights = weights_of(tiny, seed, cpu_cache)
    with opened(build([], tiny, threads), weights, blocks) as session:
        verdict = validate(
            session, weights, scenarios(tiny, seed, weights, quick=True, tokens=session.layout.tokens), seed
        )
        assert verdict.passed, verdict


@in_child()
def test_grid_that_cannot_be_resident_is_refused(tiny, cpu_cache):
    with (
        pytest.raises(Refused, match=r"registers a thread .* blocks on each of .* SMs; use blocks="),
        opened(build([], tiny), weights_of(tiny, 0, cpu_cache), 40 * device().multiprocessors),
    ):
        pass


@pytest.mark.parametrize("composed", sampled(VARIANTS, 1), ids=str)
@in_child()
def test_timed_launches_leave_the_same_outputs_as_untimed_ones(tiny, cpu_cache, composed, grid, seed):
    """Words of barriers count launches, so they are not compared."""
    with opened(composed.source(tiny), weights_of(tiny, seed, cpu_cache), grid) as session:
        session.reset([seed % tiny.vocab], 0)
        session.run(6)
        want = Snapshot.of(session)
        session.reset([seed % tiny.vocab], 0)
        assert all(seconds > 0 for seconds in session.time(steps=6, repeats=3))
        found = next(bit_differences(Snapshot.of(session), want, f"seed {seed}"), None)
        assert found is None, found

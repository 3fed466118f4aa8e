"""Kernels on a GPU: the same scenarios, reference and tolerances as on the host device."""

import os
import random

import pytest
import torch
from composed import STACKS, VARIANTS

from common.compile.source import build
from common.errors import Refused
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.validate.check import compare_bits, validate
from common.validate.scenarios import scenarios
from common.validate.tolerances import ReferenceSteps

pytestmark = pytest.mark.cuda
FULL = Model("qwen3_0_6b", 1024, 3072, 28, 16, 8, 128, 151936, 2048, 1e6, 1e-6, True)
EVERY = [*VARIANTS, *STACKS]


def weights_of(model, seed, host_cache) -> torch.Tensor:
    return load("synthetic", model, None, host_cache, seed)[2].flat


def prove(open_session, composed, model, weights, seed, quick, reference=None) -> None:
    session = open_session(composed.source(model), weights)
    verdict = validate(session, weights, model, scenarios(model, seed, weights, quick), seed, reference=reference)
    assert verdict.passed, verdict
    root = open_session(composed.root.source(model), weights)
    found = compare_bits(session, root, scenarios(model, seed, weights, quick=True))
    assert found is None, f"{found}, seed {seed}"


@pytest.mark.parametrize("shape", ["tiny", "odd"])
@pytest.mark.parametrize("composed", EVERY, ids=str)
def test_small_models(request, open_session, host_cache, composed, shape, seed):
    model = request.getfixturevalue(shape)
    prove(open_session, composed, model, weights_of(model, seed, host_cache), seed, quick=False)


@pytest.fixture(scope="module")
def whole(host_cache) -> tuple[int, ReferenceSteps]:
    """One seed for all stacks at full size: they share the reference's steps, which take longer than the kernels."""
    seed = int(os.environ.get("LAB_SEED") or random.SystemRandom().randrange(2**31))
    return seed, ReferenceSteps(FULL, Layout(FULL), weights_of(FULL, 0, host_cache))


@pytest.mark.parametrize("composed", EVERY, ids=str)
def test_full_size(open_session, whole, composed):
    seed, reference = whole
    prove(open_session, composed, FULL, reference.weights, seed, quick=True, reference=reference)


@pytest.mark.parametrize("blocks", [1, 3, 8])
@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_any_grid_and_block(open_session, tiny, host_cache, blocks, threads, seed):
    weights = weights_of(tiny, seed, host_cache)
    session = open_session(build([], tiny, threads), weights, blocks)
    verdict = validate(session, weights, tiny, scenarios(tiny, seed, weights, quick=True), seed)
    assert verdict.passed, verdict


def test_grid_that_cannot_be_resident_is_refused(device, open_session, tiny, host_cache):
    with pytest.raises(Refused, match=r"registers a thread .* blocks on each of .* SMs; use blocks="):
        open_session(build([], tiny), weights_of(tiny, 0, host_cache), 40 * device.multiprocessors)


@pytest.mark.parametrize("composed", VARIANTS, ids=str)
def test_timed_launches_leave_the_same_outputs_as_untimed_ones(open_session, tiny, host_cache, composed, seed):
    weights, prompt = weights_of(tiny, seed, host_cache), [seed % tiny.vocab]
    session = open_session(composed.source(tiny), weights)
    session.reset(prompt, 0)
    session.run(6)
    want = session.scratch(), session.cache(), session.state()
    session.reset(prompt, 0)
    assert all(seconds > 0 for seconds in session.time(steps=6, repeats=3))
    for got, expected in zip((session.scratch(), session.cache(), session.state()), want, strict=True):
        assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8)), seed

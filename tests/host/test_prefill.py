"""Prefill by torch: every entry is a legal rounding of the reference's, whatever the chunks and the history."""

import random

import pytest
import torch
from legal_entries import check_entries

from common.model.layout import Layout
from common.model.weights import load
from experiments.generation import prefill
from experiments.generation.engine import Engine
from experiments.generation.request import Request
from experiments.run.setup import Setup
from experiments.show.progress import Quiet

pytestmark = pytest.mark.host


@pytest.fixture
def opened(configured, host_cache, seed):
    """opened(*overrides): an engine with the baseline."""
    engines = []

    def open_(*overrides):
        config = configured("variant=baseline", f"seed={seed}", f"cache={host_cache}", *overrides)
        engines.append(Engine(Setup(config, Quiet()), config.stacks[0]))
        return engines[-1]

    yield open_
    for engine in engines:
        engine.close()


def test_a_prompt_of_2048_tokens_in_one_call(opened, seed):
    engine = opened("model=tiny", "model.positions=2049")
    prompt = random.Random(seed).choices(range(engine.model.vocab), k=2048)
    pieces = list(engine.stream(Request(tuple(prompt), 1)))
    assert [len(piece.ids) for piece in pieces] == [1]
    assert engine.stats().first_token_s > 0
    check_entries(engine, prompt, [0, 1, prefill.CHUNK - 1, prefill.CHUNK, 2046, 2047])


def test_chunks_and_history_of_odd_shapes(opened, seed, monkeypatch):
    monkeypatch.setattr(prefill, "CHUNK", 5)
    engine = opened("model=odd")
    prompt = random.Random(seed).choices(range(engine.model.vocab), k=19)
    for end in (7, 8, 19):
        list(engine.stream(Request(tuple(prompt[:end]), 1)))
    check_entries(engine, prompt)


def test_a_token_sees_no_later_one(tiny, host_cache, seed):
    weights, layout = load("synthetic", tiny, None, host_cache, seed)[2].flat, Layout(tiny)
    one = prefill.Prefill(tiny, layout, weights, "cpu")
    none = torch.empty(*layout.cache.shape[:3], 0, tiny.head_dim, dtype=torch.bfloat16)
    together = one.entries([5, 6, 7, 8], none)
    others = one.entries([5, 6, 9, 9], none)
    assert torch.equal(together[..., :2, :], others[..., :2, :])
    assert not torch.equal(together[..., 2, :], others[..., 2, :])

"""Prefill by torch: every entry is a legal rounding of the reference's, whatever the chunks and the history."""

import random
from dataclasses import replace

import pytest
import torch
from legal_entries import check_entries
from sampled import sampled

from common.model.format import OF_CACHE
from common.model.layout import Layout
from common.model.weights import load
from experiments.run import torch_decoder


@pytest.fixture
def entries(cpu_cache, seed):
    """entries(model, ids, history): entries of `ids`, after a history of some positions or none; and the weights."""

    def entries_(model, ids, history=None):
        weights, layout = load("synthetic", model, None, cpu_cache, seed)[2].flat, Layout(model)
        *heads, _, row = layout.cache.stored
        none = torch.empty(*heads, 0, row, dtype=torch.bfloat16)
        return weights, torch_decoder.prefill(layout, weights, ids, none if history is None else history)

    return entries_


def test_a_prompt_of_2048_tokens_in_one_call(entries, tiny, seed):
    model = replace(tiny, positions=2048)
    prompt = random.Random(seed).choices(range(model.vocab), k=2048)
    weights, found = entries(model, prompt)
    check_entries(model, weights, found, prompt, [0, 1, torch_decoder.CHUNK - 1, torch_decoder.CHUNK, 2047])


@pytest.mark.parametrize("kept", sampled(OF_CACHE, 2))
def test_chunks_and_history_of_odd_shapes(kept, entries, odd, seed, monkeypatch):
    odd = odd.in_formats(kv=kept)
    monkeypatch.setattr(torch_decoder, "CHUNK", 5)
    prompt = random.Random(seed).choices(range(odd.vocab), k=19)
    weights, found = entries(odd, prompt[:7])
    for first, end in ((7, 8), (8, 19)):
        found = torch.cat((found, entries(odd, prompt[first:end], found)[1]), dim=3)
    check_entries(odd, weights, found, prompt, sampled(range(19), 9))


def test_a_token_sees_no_later_one(entries, tiny):
    together, others = (entries(tiny, ids)[1] for ids in ([5, 6, 7, 8], [5, 6, 9, 9]))
    assert torch.equal(together[..., :2, :], others[..., :2, :])
    assert not torch.equal(together[..., 2, :], others[..., 2, :])

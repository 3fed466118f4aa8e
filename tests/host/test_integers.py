"""Small integers are exact in fp32 whatever the order of summation: linear stages are compared bit for bit.

The expected values are int64 products, computed apart from any floating point.
"""

import pytest
import torch

from common.catalog import read_catalog
from common.layout import Layout
from common.model import Model
from common.source import build
from common.stack import choose_stacks

pytestmark = pytest.mark.host
CATALOG = read_catalog()


class Bench:
    """One stage at a time, on integer weights and activations of a model."""

    def __init__(self, open_session, model: Model, variant: str, blocks: int, seed: int) -> None:
        self.model, self.layout = model, Layout(model)
        self.random = torch.Generator().manual_seed(seed)
        self.weights = torch.randint(-3, 4, (self.layout.weights_size,), generator=self.random)
        stack = choose_stacks(CATALOG, variant, None, {}, 256)[0]
        mixins = [CATALOG.variants[name] for name in stack.variants]
        source = build(mixins, model, knobs=stack.knobs, by_stage=True)
        self.open = lambda: open_session(source, self.weights.bfloat16(), blocks, schedule=seed)

    def integers(self, *shape: int, low: int = -4, high: int = 4) -> torch.Tensor:
        return torch.randint(low, high + 1, shape, generator=self.random)

    def matrix(self, name: str, layer: int | None = None) -> torch.Tensor:
        slot = self.layout.weight(name, layer)
        return self.weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    def run(self, *stages: str, layer: int = 0, position: int = 0, cache=None, **taps: torch.Tensor) -> torch.Tensor:
        """Scratch after `stages`, which found `taps` in it; taps of the layer, or of the whole step."""
        session = self.open()
        session.reset([1] * (position + 1), position, None)
        scratch = session.scratch()
        for name, values in taps.items():
            slot = self.layout.tap(name, layer if name in self.layout.layer_scratch else None)
            scratch[slot.offset : slot.offset + slot.size] = values.flatten().float()
        session.write_scratch(scratch)
        if cache is not None:
            session.write_cache(cache)
        for stage in stages:
            session.run_stage(stage, layer)
        self.state = session.state()
        return session.scratch()

    def tap(self, scratch: torch.Tensor, name: str, layer: int | None = None) -> torch.Tensor:
        slot = self.layout.tap(name, layer)
        return scratch[slot.offset : slot.offset + slot.size]


@pytest.fixture(params=[(name, blocks) for name in CATALOG.variants for blocks in (3, 8)], ids=lambda p: f"{p[0]}-{p[1]}")
def bench(request, open_session, tiny, odd, seed):
    """Each variant, with 3 blocks on the odd model and 8 on the tiny one."""
    variant, blocks = request.param
    return Bench(open_session, odd if blocks == 3 else tiny, variant, blocks, seed)


def test_qkv(bench):
    x = bench.integers(bench.model.hidden)
    got = bench.tap(bench.run("qkv", layer=1, input_norm=x), "qkv", 1)
    assert torch.equal(got, (bench.matrix("qkv", 1) @ x).float())


def test_o_proj(bench):
    x, before = bench.integers(bench.model.query), bench.integers(bench.model.hidden)
    got = bench.tap(bench.run("o_proj", attention=x, embed=before), "o_proj", 0)
    assert torch.equal(got, (before + bench.matrix("o", 0) @ x).float())


def test_gate_up(bench):
    """silu(g) is g itself once exp(-g) is lost beside 1; weights and inputs are made positive for that."""
    model = bench.model
    for name in ("gate", "up"):
        bench.matrix(name, 1).copy_(bench.integers(model.intermediate, model.hidden, low=1, high=3))
    x = bench.integers(model.hidden, low=1, high=3)
    gate, up = bench.matrix("gate", 1) @ x, bench.matrix("up", 1) @ x
    assert int(gate.min()) > 25
    got = bench.tap(bench.run("gate_up", layer=1, post_norm=x), "gate_up", 1)
    assert torch.equal(got, (gate * up).float())


def test_down(bench):
    x, before = bench.integers(bench.model.intermediate), bench.integers(bench.model.hidden)
    got = bench.tap(bench.run("down", layer=1, gate_up=x, o_proj=before), "down", 1)
    assert torch.equal(got, (before + bench.matrix("down", 1) @ x).float())


@pytest.mark.parametrize("high", [0, 1, 4])
def test_token_is_the_lowest_of_the_largest(bench, high):
    """Small ranges tie often; with all zero, every logit ties and the token is 0."""
    x = bench.integers(bench.model.hidden, low=-high, high=high)
    scratch = bench.run("lm_head", "argmax", final_norm=x)
    logits = bench.matrix("lm_head") @ x
    assert torch.equal(bench.tap(scratch, "lm_head"), logits.float())
    lowest = int((logits == logits.max()).nonzero()[0])
    assert int(bench.state[bench.layout.state["token"].offset]) == lowest


@pytest.mark.parametrize("position", [0, 1, 7, 31])
def test_attention_averages_when_all_scores_are_equal(bench, position):
    """A zero query scores every key 0; over 2^k positions the mean of integers is exact."""
    model, layout = bench.model, bench.layout
    cache = bench.integers(*layout.cache.shape)
    scratch = bench.run(
        "attention", layer=1, position=position, cache=cache.bfloat16(), qk_norm_rope=torch.zeros(model.query)
    )
    mean = cache[1, 1, :, : position + 1].sum(1) / (position + 1)
    want = mean.repeat_interleave(model.heads // model.kv_heads, dim=0).flatten().float()
    assert torch.equal(bench.tap(scratch, "attention", 1), want)

"""Linear stages on small integers, which are exact in fp32 in any order of summation: compared bit for bit.

The expected values are int64 products, without any floating point. The mean square of +1 and -1 is exactly 1, so
without epsilon their norm is sign times gain, and a norm can be tested together with the stage that reads it.
"""

import re
from dataclasses import replace

import pytest
import torch
from composed import CATALOG, VARIANTS, Composed
from parts import PARTS, build_parts, header
from sampled import sampled

from common.compile.source import build
from common.model.layout import Layout
from common.model.shapes import Model
from common.stacks.stack import choose_stacks

pytestmark = pytest.mark.cpu
LAYER = 1


class StageHarness:
    """Runs one part of a step in one launch (for `graph`, stage by stage) on integer weights and activations."""

    def __init__(self, open_session, model: Model, names: tuple[str, ...], blocks: int, folder, seed: int) -> None:
        self.model, self.layout = model, Layout(model)
        self.random = torch.Generator().manual_seed(seed)
        self.weights = torch.randint(-3, 4, (self.layout.weights_size,), generator=self.random)
        stack = choose_stacks(CATALOG, "", names, {}, 256)[0]
        mixins = [CATALOG.variants[name] for name in stack.variants]
        self.by_stage = any(variant.launch == "graph" for variant in mixins)
        if self.by_stage:
            source = build(mixins, model, knobs=stack.knobs)
        else:
            source = build_parts(mixins, model, folder, layer=LAYER, knobs=stack.knobs)
        self.open = lambda: open_session(source, self.weights.bfloat16(), blocks, schedule=seed)

    def integers(self, *shape: int, low: int = -4, high: int = 4) -> torch.Tensor:
        return torch.randint(low, high + 1, shape, generator=self.random)

    def signs(self) -> torch.Tensor:
        return 2 * self.integers(self.model.hidden, low=0, high=1) - 1

    def weight(self, name: str, layer: int | None = None) -> torch.Tensor:
        slot = self.layout.weight(name, layer)
        return self.weights[slot.offset : slot.offset + slot.size].view(slot.shape)

    def run(self, *stages: str, position: int = 0, cache=None, **taps: torch.Tensor) -> torch.Tensor:
        """Scratch after `stages`, with `taps` as inputs: taps of layer 1, or with the suffix `_0` of layer 0."""
        session = self.open()
        session.reset([PARTS.index(stages)] * (position + 1), position, None)
        scratch = session.scratch()
        for name, values in taps.items():
            self.tap(scratch, *((name[:-2], 0) if name.endswith("_0") else (name, LAYER))).copy_(values.flatten())
        session.write_scratch(scratch)
        if cache is not None:
            session.cache.store(0, cache)
        if self.by_stage:
            for stage in stages:
                session.run_stage(stage, LAYER)
        else:
            session.run()
        self.state = session.state()
        return session.scratch()

    def tap(self, scratch: torch.Tensor, name: str, layer: int | None = None) -> torch.Tensor:
        slot = self.layout.tap(name, layer)
        return scratch[slot.offset : slot.offset + slot.size]


def stands_alone(composed: Composed) -> bool:
    """True if a stage reads its input where a test can write it, and its weights without the earlier stages'.

    Not in the mail, heads not where qkv left them, and no loader that brings the weights of a whole step.
    """
    return not any(
        {"receive", "query", "load"} & {*re.findall(r"\w+", header(name)["Overrides"])} for name in composed.names
    )


@pytest.fixture(
    params=sampled([(composed, blocks) for composed in VARIANTS if stands_alone(composed) for blocks in (3, 8)], 6),
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def harness(request, open_session, tiny, odd, tmp_path, seed):
    """A variant, with 3 blocks on the odd model and 8 on the tiny one; two layers, no epsilon."""
    composed, blocks = request.param
    model = replace(odd if blocks == 3 else tiny, layers=2, rms_eps=0.0)
    return StageHarness(open_session, model, composed.names, blocks, tmp_path, seed)


def test_qkv(harness):
    x = harness.signs()
    scratch = harness.run("input_norm", "qkv", down_0=x)
    normed = x * harness.weight("input_norm", LAYER)
    assert torch.equal(harness.tap(scratch, "input_norm", LAYER), normed.float())
    assert torch.equal(harness.tap(scratch, "qkv", LAYER), (harness.weight("qkv", LAYER) @ normed).float())


def test_o_proj(harness):
    x, before = harness.integers(harness.model.query), harness.integers(harness.model.hidden)
    got = harness.tap(harness.run("o_proj", attention=x, down_0=before), "o_proj", LAYER)
    assert torch.equal(got, (before + harness.weight("o", LAYER) @ x).float())


def test_gate_up(harness):
    """silu(g) equals g if exp(-g) rounds away against 1; positive weights and inputs make g large enough."""
    model = harness.model
    for name in ("gate", "up"):
        harness.weight(name, LAYER).copy_(harness.integers(model.intermediate, model.hidden, low=1, high=3))
    harness.weight("post_norm", LAYER).copy_(harness.integers(model.hidden, low=1, high=3))
    x = harness.weight("post_norm", LAYER).clone()
    gate, up = harness.weight("gate", LAYER) @ x, harness.weight("up", LAYER) @ x
    assert int(gate.min()) > 25
    got = harness.tap(harness.run("post_norm", "gate_up", o_proj=torch.ones(model.hidden)), "gate_up", LAYER)
    assert torch.equal(got, (gate * up).float())


def test_down(harness):
    x, before = harness.integers(harness.model.intermediate), harness.integers(harness.model.hidden)
    got = harness.tap(harness.run("down", gate_up=x, o_proj=before), "down", LAYER)
    assert torch.equal(got, (before + harness.weight("down", LAYER) @ x).float())


@pytest.mark.parametrize("high", [0, 1, 4])
def test_token_is_the_lowest_id_of_the_largest_logits(harness, high):
    """Small ranges tie often; with all zero, every logit ties and the token is 0."""
    gain = harness.weight("final_norm").copy_(harness.integers(harness.model.hidden, low=-high, high=high))
    x = harness.signs()
    scratch = harness.run("final_norm", "lm_head", "argmax", down=x)
    logits = harness.weight("lm_head") @ (x * gain)
    assert torch.equal(harness.tap(scratch, "lm_head"), logits.float())
    lowest = int((logits == logits.max()).nonzero()[0])
    assert int(harness.state[harness.layout.state["token"].offset]) == lowest


@pytest.mark.parametrize("position", [0, 1, 7, 31])
def test_attention_averages_when_all_scores_are_equal(harness, position):
    """A zero query scores every key 0; over 2^k positions the mean of integers is exact."""
    model, layout = harness.model, harness.layout
    cache = harness.integers(*layout.cache.shape)
    query = torch.zeros(model.query)
    scratch = harness.run("attention", position=position, cache=cache.bfloat16(), qk_norm_rope=query)
    mean = cache[LAYER, 1, :, : position + 1].sum(1) / (position + 1)
    want = mean.repeat_interleave(model.heads // model.kv_heads, dim=0).flatten().float()
    assert torch.equal(harness.tap(scratch, "attention", LAYER), want)

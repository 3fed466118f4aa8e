"""Float64 reference against the families of transformers and against numbers worked by hand."""

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
import torch
from rounded_cache import rounded_cache
from wide_torch import in_float64

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import Reference, attend, rms_norm

if TYPE_CHECKING:  # imported where they are used: it takes seconds, in each process that only collects tests
    from transformers import DynamicCache, PreTrainedModel

#          hidden intermediate layers heads kv head_dim vocab positions theta eps tied
SHAPES = [
    Model("grouped", 64, 96, 3, 4, 2, 16, 97, 48, 1e6, 1e-6, True),
    Model("wide_heads", 32, 72, 2, 6, 2, 24, 51, 48, 1e4, 1e-5, False),
    Model("one_kv_head", 48, 40, 4, 5, 1, 8, 33, 48, 5e5, 1e-3, True),
    Model("no_groups", 40, 128, 2, 3, 3, 32, 64, 48, 123.0, 1e-6, False),
]
LLAMA = {"qk_norm": False, "rope": "llama3:8:1:4:32"}  # scaled below, between and above its wavelengths of 8 and 32
QWEN2 = {"qk_norm": False, "qkv_bias": True}
FAMILIES = [
    Model("llama", 64, 96, 3, 4, 2, 16, 97, 48, 1e4, 1e-5, True, **LLAMA),
    Model("llama_untied", 48, 72, 2, 3, 1, 24, 51, 48, 5e5, 1e-5, False, **LLAMA),
    Model("llama_plain", 40, 48, 2, 5, 5, 8, 51, 48, 1e4, 1e-6, False, qk_norm=False),
    Model("qwen2", 56, 96, 3, 7, 1, 8, 97, 48, 1e6, 1e-6, True, **QWEN2),
    Model("qwen2_untied", 48, 72, 2, 4, 2, 24, 51, 48, 1e4, 1e-6, False, **QWEN2),
]


def random_model(model: Model, seed: int) -> "tuple[PreTrainedModel, Layout, torch.Tensor]":
    """A random transformers model with bf16 weights in float32, and the same weights in our layout."""
    from experiments.engines.transformers_model import causal_lm

    torch.manual_seed(seed)
    layout = Layout(model)
    flat = torch.full((layout.weights_size,), torch.nan, dtype=torch.bfloat16)
    for name, layer in layout.tensors():
        slot = layout.weight(name, layer)
        noise, columns = torch.randn(slot.shape), slot.shape[1] if len(slot.shape) == 2 else 1
        slot.of(flat).copy_(1 + noise / 4 if "norm" in name else noise / columns**0.5)
    return causal_lm(layout, flat, torch.float32), layout, flat


def taps_of(theirs: "PreTrainedModel", token: int, past: "DynamicCache") -> dict[tuple[str, int | None], torch.Tensor]:
    """One decode step of transformers: inputs and outputs of its modules, under the names of our stages."""
    inputs, outputs = {}, {}

    def listen(name: str):
        def hook(_, args, out):
            inputs[name], outputs[name] = args, out

        return hook

    hooks = [module.register_forward_hook(listen(name)) for name, module in theirs.named_modules()]
    with torch.no_grad():
        logits = theirs(torch.tensor([[token]]), past_key_values=past, use_cache=True).logits
    for hook in hooks:
        hook.remove()
    taps = {("embed", None): outputs["model.embed_tokens"], ("final_norm", None): outputs["model.norm"]}
    for i in range(theirs.config.num_hidden_layers):
        at = f"model.layers.{i}"
        taps["input_norm", i] = outputs[f"{at}.input_layernorm"]
        taps["qkv", i] = torch.cat([outputs[f"{at}.self_attn.{part}_proj"] for part in "qkv"], dim=-1)
        taps["key", i], taps["value", i] = past.given[i]
        taps["attention", i] = inputs[f"{at}.self_attn.o_proj"][0]
        taps["o_proj", i] = inputs[f"{at}.post_attention_layernorm"][0]
        taps["post_norm", i] = outputs[f"{at}.post_attention_layernorm"]
        taps["gate_up", i] = inputs[f"{at}.mlp.down_proj"][0]
        taps["down", i] = outputs[at]
    return taps | {("lm_head", None): logits}


@pytest.mark.parametrize("stored", [torch.float64, torch.bfloat16], ids=["exact_cache", "bf16_cache"])
@pytest.mark.parametrize("model", [*SHAPES, *FAMILIES], ids=lambda model: model.name)
def test_every_stage_equals_transformers_in_float64(model, stored, seed):
    from transformers import modeling_rope_utils

    theirs, layout, flat = random_model(model, seed)
    modules = sys.modules[type(theirs).__module__], modeling_rope_utils
    theirs = theirs.double()
    with in_float64(*modules):
        theirs.model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)
    past = rounded_cache()(stored)
    cache = torch.full(layout.cache.shape, torch.nan, dtype=stored)
    reference = Reference(layout, flat)
    for position, token in enumerate(torch.randint(model.vocab, (12,)).tolist()):
        with in_float64(*modules):
            want = taps_of(theirs, token, past)
        got = reference.step(token, position, cache)
        cache[:, :, :, position] = got.stored
        # Taps that transformers does not expose: its rotary table and the rotated query.
        assert got.values.keys() - want.keys() == {("rope", None)} | {("qk_norm_rope", i) for i in range(model.layers)}
        for tap, value in want.items():
            worst = (got[tap].flatten() - value.flatten()).abs().max()
            assert worst <= 1e-11, f"{tap}: {worst}, position {position}, seed {seed}"
        assert got.token == int(want["lm_head", None].argmax())


@pytest.mark.parametrize("model", [*SHAPES[:3], FAMILIES[0], FAMILIES[3]], ids=lambda model: model.name)
def test_greedy_ids_equal_transformers(model, seed):
    theirs, layout, flat = random_model(model, seed)
    prompt = torch.randint(model.vocab, (5,)).tolist()
    got = Reference(layout, flat).greedy(prompt, 24)
    assert len(got) == 24
    # An id may differ only at a near-tie in transformers' float32 run with the same rounding of the cache.
    with torch.no_grad():
        past, ids = rounded_cache()(), prompt + got
        for position, token in enumerate(ids[:-1]):
            logits = theirs(torch.tensor([[token]]), past_key_values=past, use_cache=True).logits[0, -1]
            if position + 1 >= len(prompt):
                gap = logits.max() - logits[ids[position + 1]]
                # Two bf16 roundings may differ in float32; each changes a logit by far less than this.
                assert gap <= 0.02, f"position {position}, gap {gap}, seed {seed}"


@pytest.mark.parametrize("model", SHAPES[:2], ids=lambda model: model.name)
def test_float32_stays_near_float64(model, seed):
    _, layout, flat = random_model(model, seed)
    cache = torch.randn(layout.cache.shape).bfloat16()
    truth = Reference(layout, flat).step(1, 40, cache)
    rough = Reference(layout, flat, torch.float32).step(1, 40, cache, truth.stored)
    assert truth.values.keys() == rough.values.keys()
    differs = 0
    for tap, want in truth.values.items():
        assert (rough[tap].dtype, rough[tap].shape) == (torch.float32, want.shape)
        error = (rough[tap] - want).abs().max() / want.abs().max()
        assert error < 1e-5, f"{tap}: {error}, seed {seed}"
        differs += bool(error)
    assert differs > len(truth.values) / 2  # float64 really is float64


def test_only_the_history_is_read_and_the_cache_is_not_written(seed):
    model = SHAPES[0]
    _, layout, flat = random_model(model, seed)
    cache = torch.randn(layout.cache.shape).bfloat16()
    poisoned = cache.clone()
    poisoned[:, :, :, 7:] = torch.nan
    before = poisoned.clone()
    reference = Reference(layout, flat)
    a, b = reference.step(3, 7, cache), reference.step(3, 7, poisoned)
    assert all(torch.equal(a[tap], b[tap]) for tap in a.values)
    assert torch.equal(before.view(torch.int16), poisoned.view(torch.int16))


def test_stored_entries_replace_the_rounding(seed):
    model = SHAPES[0]
    _, layout, flat = random_model(model, seed)
    cache = torch.randn(layout.cache.shape).bfloat16()
    reference = Reference(layout, flat)
    own = reference.step(3, 7, cache)
    assert torch.equal(own.stored[1], torch.stack((own["key", 1], own["value", 1])).bfloat16())
    other = own.stored.clone()
    other[1] *= 2
    given = reference.step(3, 7, cache, other)
    assert torch.equal(given.stored, other)
    same = [tap for tap in own.values if torch.equal(own[tap], given[tap])]
    changed = [tap for tap in own.values if tap not in same]
    assert changed[0] == ("attention", 1), seed
    assert ("key", 1) in same
    assert ("key", 2) in changed


def exact(numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-15)


def test_rms_norm_by_hand():
    # the mean of the squares of (3, 4, 0, 0) is 25 / 4; with eps 0 the scale is 2 / 5
    close(rms_norm(exact([3, 4, 0, 0]), exact([1, 1, 1, 2]), 0.0), exact([1.2, 1.6, 0, 0]))
    # eps is inside the root: mean 1, eps 3 gives 1 / sqrt(4)
    close(rms_norm(exact([1, -1, 1]), exact([3, 3, 5]), 3.0), exact([1.5, -1.5, 2.5]))


def test_attention_by_hand():
    # Two KV heads, four query heads, head_dim 4: a query of 2 and a key of x score 2 x / sqrt(4) = x.
    ln2, ln3 = math.log(2), math.log(3)
    query, keys = torch.zeros(4, 4, dtype=torch.float64), torch.zeros(2, 3, 4, dtype=torch.float64)
    query[:, 0] = 2
    keys[0, :, 0] = exact([0, ln2, ln3])  # weights 1/6, 2/6, 3/6
    keys[1, :, 0] = exact([800, 800, 800 - ln2])  # weights 2/5, 2/5, 1/5; exp(800) overflows without the maximum
    values = torch.arange(24, dtype=torch.float64).view(2, 3, 4)
    first = [float(Fraction(c) / 6 + Fraction(4 + c) / 3 + Fraction(8 + c) / 2) for c in range(4)]
    second = [float(Fraction(2, 5) * (12 + c) + Fraction(2, 5) * (16 + c) + Fraction(20 + c) / 5) for c in range(4)]
    close(attend(query, keys, values), exact([first, first, second, second]))


def test_argmax_takes_the_lowest_id_on_ties(seed):
    model = SHAPES[1]
    _, layout, flat = random_model(model, seed)
    cache = torch.randn(layout.cache.shape).bfloat16()
    slot = layout.weight("lm_head")
    head = flat[slot.offset : slot.offset + slot.size].view(slot.shape)
    reference = Reference(layout, flat)
    head[:] = -reference.step(0, 2, cache)["final_norm", None].sign()  # every logit is negative
    head[[11, 29, 50]] = 0  # ties at 0, which are exact: equal rows elsewhere may differ by the rounding of their sums
    taps = reference.step(0, 2, cache)
    assert taps["lm_head", None].max() == 0, seed
    assert taps.token == 11, seed

"""Synthetic weights: seeded, of a size that decodes like a model, in every family."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from common.errors import LabError
from common.model.shapes import Model
from common.model.weights import hf_slots, load

TINY = Model("tiny", 64, 112, 3, 4, 2, 24, 96, 64, 1e6, 1e-6, True)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    return got.shape == want.shape and torch.equal(got.view(torch.int16), want.view(torch.int16))


def test_synthetic_is_seeded_and_scaled(cache: Path, seed: int) -> None:
    model, layout, packed = load("synthetic", TINY, 16, cache, seed)
    assert model == replace(TINY, positions=16)
    assert same(packed.flat, load("synthetic", TINY, 32, cache, seed)[2].flat)
    assert len(list(cache.glob("*.bf16"))) == 1
    other = load("synthetic", TINY, None, cache, seed + 1)[2]
    assert other.sha != packed.sha
    assert not same(packed.flat, other.flat)
    untied = load("synthetic", replace(TINY, tied=False), None, cache, seed)
    assert not same(*(untied[2].flat[s.offset :][: s.size] for s in map(untied[1].weight, ("embed", "lm_head"))))

    for name, slot in hf_slots(layout):
        values = packed.flat[slot.offset :][: slot.size].view(slot.shape).double()
        if values.dim() == 1:
            mean = 2 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1
            assert 0.5 <= values.min() / mean < 0.8, (name, seed)
            assert 1.2 < values.max() / mean <= 1.5, (name, seed)
        else:
            branch = 4 * (2 * 3) ** -0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            assert values.std() == pytest.approx(branch * slot.shape[1] ** -0.5, rel=0.05), (name, seed)
            assert len(values.unique(dim=0)) == len(values), (name, seed)

    # The same number of weights in other places is another file.
    _, layout, packed = load("synthetic", replace(TINY, heads=2, kv_heads=1, head_dim=48), None, cache, seed)
    slot = layout.weight("q_norm", 0)
    assert slot.size == 48
    assert packed.flat[slot.offset :][:48].all()

    with pytest.raises(LabError, match="no shapes"):
        load("synthetic", None, None, cache)
    with pytest.raises(LabError, match="positions is 0"):
        load("synthetic", TINY, 0, cache)


@pytest.mark.parametrize("name", ["Qwen3", "Qwen3, untied", "Qwen2", "Llama"])
def test_synthetic_decodes_like_a_model(cache: Path, seed: int, name: str) -> None:
    """In transformers: no residual fades or explodes, logits are spread, and the next token depends on the input."""
    pytest.importorskip("transformers")
    from experiments.engines.transformers_model import causal_lm

    traits: dict[str, Any] = {} if "Qwen3" in name else {"qk_norm": False, "qkv_bias": name == "Qwen2"}
    rope = "llama3:8:1:4:32" if name == "Llama" else "default"
    tied = "untied" not in name
    tiny = Model("t", 256, 512, 6, 8, 4, 32, 2048, 64, 1e6, 1e-6, tied, **traits, rope=rope)
    _, layout, packed = load("synthetic", tiny, None, cache, seed)
    module = causal_lm(layout, packed.flat, torch.float32)
    ids = torch.randint(2048, (4, 48), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        out = module(ids, output_hidden_states=True)
    rms = [float(hidden.square().mean().sqrt()) for hidden in out.hidden_states[1:-1]]
    assert all(0.1 < value < 10 for value in rms), (rms, seed)
    assert 0.3 < float(out.logits.std()) < 10, seed
    chosen = module.generate(ids[:, :4], max_new_tokens=32, do_sample=False, pad_token_id=0)[:, 4:]
    assert len(chosen.unique()) > 24, (chosen, seed)


def test_synthetic_queries_keys_and_biases_have_their_size(cache: Path, seed: int) -> None:
    """Without a norm of heads the rows of q and k are twice as large as those of v; biases a quarter of outputs."""
    model = replace(TINY, qk_norm=False, qkv_bias=True)
    _, layout, packed = load("synthetic", model, None, cache, seed)
    for layer in range(model.layers):
        bias, rows = (layout.weight(name, layer).of(packed.flat).double() for name in ("qkv_bias", "qkv"))
        for part, size in ((slice(0, 144), 2), (slice(144, 192), 1)):  # 4 and 2 heads of 24; 2 heads
            assert rows[part].std() == pytest.approx(size * 64**-0.5, rel=0.05), seed
            assert bias[part].std() == pytest.approx(size / 4, rel=0.25), seed
            assert bias[part].abs().max() <= size / 4 * 3**0.5 * 1.01, seed

"""Checkpoints made by hand, for tests that damage them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from common.errors import LabError
from common.model.shapes import Model
from common.model.weights import load

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
    "rope_scaling": None,
}
MODEL = Model("hand", 32, 48, 2, 4, 2, 16, 64, 128, 1e6, 1e-6, False)
SHAPES = {"model.embed_tokens": (64, 32), "model.norm": (32,), "lm_head": (64, 32)} | {
    f"model.layers.{layer}.{name}": shape
    for layer in range(2)
    for name, shape in {
        "input_layernorm": (32,),
        "self_attn.q_proj": (64, 32),
        "self_attn.k_proj": (32, 32),
        "self_attn.v_proj": (32, 32),
        "self_attn.q_norm": (16,),
        "self_attn.k_norm": (16,),
        "self_attn.o_proj": (32, 64),
        "post_attention_layernorm": (32,),
        "mlp.gate_proj": (48, 32),
        "mlp.up_proj": (48, 32),
        "mlp.down_proj": (32, 48),
    }.items()
}


def tensors(seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"{name}.weight": torch.randn(shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}


def save(folder: Path, weights: dict[str, torch.Tensor] | None = None, **config: object) -> Path:
    """A checkpoint folder; returns its model.safetensors."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    save_file(tensors() if weights is None else weights, folder / "model.safetensors")
    return folder / "model.safetensors"


def refused(spec: Path | str, *words: str, cache: Path, model: Model | None = None) -> LabError:
    """Assert that loading `spec` raises a one-line LabError with every word, and leaves no packed file."""
    with pytest.raises(LabError) as caught:
        load(str(spec), model, None, cache)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.remedy
    for word in words:
        assert word in message, message
    assert not list(cache.glob("*.bf16*"))
    return caught.value

"""Transformers model with the lab's weights, for comparison with the lab's kernels."""

from typing import Any

import torch

from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import hf_slots


def qwen3(model: Model, layout: Layout, weights: torch.Tensor, dtype: torch.dtype, device: str = "cpu") -> Any:
    """A transformers Qwen3ForCausalLM in `dtype` on `device`, with `weights` (flat bf16, packed by `layout`).

    Raises LabError where transformers is not installed.
    """
    try:
        from transformers import Qwen3Config, Qwen3ForCausalLM
    except ImportError as error:
        raise LabError(f"transformers does not import: {error}", "pip install -e '.[hf]'") from None
    config = Qwen3Config(
        vocab_size=model.vocab,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim,
        max_position_embeddings=model.positions,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        rms_norm_eps=model.rms_eps,
        tie_word_embeddings=layout.tied,
        attn_implementation="sdpa",  # type: ignore[call-arg]  # of every configuration; its class does not declare it
    )
    state = {name: slot.of(weights) for name, slot in hf_slots(layout)}
    theirs = Qwen3ForCausalLM(config).to(device, dtype).eval()  # type: ignore[arg-type]  # its decorator hides `self`
    missing, extra = theirs.load_state_dict(state, strict=False)
    theirs.tie_weights()
    if extra or set(missing) - {"lm_head.weight"}:
        raise LabError(f"transformers misses {missing} and does not know {extra}", "use transformers 5")
    # .to(dtype) has rounded the rotary frequencies; a new module has them in float32.
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config=config).to(device)
    return theirs

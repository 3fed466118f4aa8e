"""Transformers model with the lab's weights, for comparison with the lab's kernels."""

from typing import Any

import torch

from common.errors import LabError
from common.model.families import FAMILIES, SUPPORTED
from common.model.format import Format
from common.model.layout import Layout
from common.model.rope import DEFAULT, LLAMA3
from common.model.shapes import Model
from common.model.slot import PLAIN
from common.model.weights import hf_slots


def causal_lm(layout: Layout, weights: torch.Tensor, dtype: torch.dtype, device: str = "cpu") -> Any:
    """A transformers model of its family in `dtype` on `device`, with `weights` (flat, packed by `layout`).

    Raises LabError where transformers is not installed, and for traits that no family has.
    """
    model = layout.model
    try:
        import transformers
    except ImportError as error:
        raise LabError(f"transformers does not import: {error}", "pip install -e '.[hf]'") from None
    wanted = model.qk_norm, model.qkv_bias
    family = next((each for each in FAMILIES.values() if (each.qk_norm, each.qkv_bias) == wanted), None)
    if family is None:
        raise LabError(
            f"model {model.name} has traits of no model of transformers: {model.traits}", f"choose those of {SUPPORTED}"
        )
    kind = getattr(transformers, family.architecture)
    config = kind.config_class(
        vocab_size=model.vocab,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim,
        max_position_embeddings=model.positions,
        rope_parameters=rope_parameters(model),
        rms_norm_eps=model.rms_eps,
        tie_word_embeddings=layout.tied,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,  # `generate` ends at none; some configurations have 2
    )
    state = {name: slot.of(weights) for name, slot in hf_slots(layout)}
    theirs = kind(config).to(device, dtype).eval()
    missing, extra = theirs.load_state_dict(state, strict=False)
    theirs.tie_weights()
    if extra or set(missing) - {"lm_head.weight"}:
        raise LabError(f"transformers misses {missing} and does not know {extra}", "use transformers 5")
    # .to(dtype) has rounded the rotary frequencies; a new module has them in float32.
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config=config).to(device)
    return theirs


def rope_parameters(model: Model) -> dict[str, Any]:
    """RoPE of a model as a configuration of transformers spells it."""
    if model.rope == DEFAULT:
        return {"rope_type": DEFAULT, "rope_theta": model.rope_theta}
    scaling = model.rope_scaling
    return {
        "rope_type": LLAMA3,
        "rope_theta": model.rope_theta,
        "factor": scaling.factor,
        "low_freq_factor": scaling.low,
        "high_freq_factor": scaling.high,
        "original_max_position_embeddings": int(scaling.positions),
    }


def rounding(config: Any, form: Format = PLAIN, positions: int | None = None) -> Any:
    """A cache of transformers that rounds its entries to `form`. positions: its size if static; None: it grows."""
    from transformers import DynamicCache, StaticCache

    cache: Any = StaticCache(config, positions) if positions else DynamicCache(config=config)
    store = cache.update

    def update(keys: torch.Tensor, values: torch.Tensor, *rest: Any, **named: Any) -> Any:
        rounded = (form.decode(form.encode(each), each.shape[-1]).to(each.dtype) for each in (keys, values))
        return store(*rounded, *rest, **named)

    cache.update = update
    return cache

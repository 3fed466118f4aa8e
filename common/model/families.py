"""Families of models that the kernels decode, and their traits: the one table of them.

All have the same block: RMSNorm, RoPE by halves, grouped-query attention within any window, SwiGLU, no other biases.
RoPE's base and scaling, the tie of the head and the shapes are each checkpoint's own, in its config.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One value of `model_type` in a config.json.

    architecture  its class in transformers, and the only one in `architectures`
    qk_norm, qkv_bias  as in Model
    head_dim      where a config.json gives none; None: hidden_size / num_attention_heads
    window        transformers' `sliding_window` where a config.json gives none, a limit of the KV cache; None: a window
                  is used only with `use_sliding_window`
    """

    architecture: str
    qk_norm: bool = False
    qkv_bias: bool = False
    head_dim: int | None = None
    window: int | None = None


FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM", window=4096),
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True, head_dim=128),
}
SUPPORTED = ", ".join(FAMILIES)

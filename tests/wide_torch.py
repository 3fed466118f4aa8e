"""The torch module as transformers would use it in float64."""

from types import ModuleType

import torch


class Wide(ModuleType):
    """The torch module with float32 replaced by float64: transformers converts norms, RoPE and softmax to float32."""

    float32 = float = torch.float64

    def __getattr__(self, name: str):
        return getattr(torch, name)

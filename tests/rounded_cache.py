"""A KV cache for transformers that stores what the kernels store."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # imported where it is used: it takes seconds, in each process that only collects tests
    from transformers import DynamicCache


def rounded_cache() -> "type[DynamicCache]":
    """A cache of transformers that rounds its entries to a dtype, and also keeps the unrounded ones."""
    from transformers import DynamicCache

    class RoundedCache(DynamicCache):
        def __init__(self, stored: torch.dtype = torch.bfloat16) -> None:
            super().__init__()
            self.stored, self.given = stored, {}

        def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *rest, **named):
            self.given[layer] = keys, values
            return super().update(keys.to(self.stored).to(keys.dtype), values.to(self.stored).to(keys.dtype), layer)

    return RoundedCache

"""Modules of transformers computing in float64."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
import torch


class Wide(ModuleType):
    """The torch module with float32 replaced by float64."""

    float32 = float = torch.float64

    def __getattr__(self, name: str):
        return getattr(torch, name)


@contextmanager
def in_float64(*modules: ModuleType) -> Iterator[None]:
    """Context in which `modules` compute in float64 what they convert to float32: norms, RoPE and softmax."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "torch", Wide("torch"))
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield

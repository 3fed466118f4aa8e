"""Libraries that take long to import, each imported at its first use: a command that needs none starts at once.

An annotation that names one is in quotes, as it would be a use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import cupy
    import pandas
    import pynvml
    import torch
else:
    cupy, pandas, pynvml, torch = map(_Lazy, ("cupy", "pandas", "pynvml", "torch"))

__all__ = ["cupy", "pandas", "pynvml", "torch"]

"""Checks of arguments as a function compiled by Cython makes them: names, and the C or exact type of each."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def typed(function: F) -> F:
    """`function` with its annotations enforced: str and tuple exactly or None, int by __index__, bool by truth."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].annotation
            if kind in (str, tuple, bytes) and value is not None and type(value) is not kind:
                raise TypeError(
                    f"Argument '{name}' has incorrect type (expected {kind.__name__}, got {type(value).__name__})"
                )
            if kind is int:
                bound.arguments[name] = value.__index__() if hasattr(value, "__index__") else _refuse(name, value)
        return function(*bound.args, **bound.kwargs)

    return checked  # type: ignore[return-value]


def _refuse(name: str, value: Any) -> int:
    raise TypeError(f"an integer is required for '{name}', got {type(value).__name__}")

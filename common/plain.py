"""Values as JSON knows them, and back again: for records, and between a run and the processes it starts."""

import dataclasses
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

UNIONS = (Union, types.UnionType)


def plain(value: Any) -> Any:
    """`value` out of what JSON knows: dataclasses, paths, numpy and torch numbers and arrays are taken apart.

    NaN and infinities become the strings "NaN", "Infinity" and "-Infinity", so that every line is JSON.
    Raises TypeError for what has no such form.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} has no place in a record")


def restore(kind: Any, value: Any) -> Any:
    """The inverse of `plain` for a `kind` made of dataclasses, tuples, mappings, paths, texts and finite numbers."""
    if value is None or kind is Any:
        return value
    if get_origin(kind) in UNIONS:
        kind = next(option for option in get_args(kind) if option is not type(None))
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        known = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: restore(hints[name], value[name]) for name in known})
    if get_origin(kind) is tuple:
        return tuple(restore(get_args(kind)[0], item) for item in value)
    return Path(value) if kind is Path else value

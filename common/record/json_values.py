"""Conversion between Python values and JSON, for records and for messages between a run and its workers."""

import dataclasses
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

UNIONS = (Union, types.UnionType)


def to_json(value: Any) -> Any:
    """`value` as dicts, lists, strings, numbers, booleans and None.

    Accepts dataclasses, paths, and numbers and arrays of numpy and torch. NaN and infinities become the strings "NaN",
    "Infinity" and "-Infinity", because JSON has no numbers for them. Raises TypeError for any other type.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch
        return to_json(value.tolist())
    raise TypeError(f"a value of type {type(value).__name__} cannot be converted to JSON")


def from_json(kind: Any, value: Any) -> Any:
    """The inverse of `to_json`: a value of type `kind`.

    kind: a type made of dataclasses, tuples, mappings, paths, strings and finite numbers, or a union of one with None.
    Raises KeyError for a missing field of a dataclass.
    """
    if value is None or kind is Any:
        return value
    if get_origin(kind) in UNIONS:
        kind = next(option for option in get_args(kind) if option is not type(None))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: from_json(hints[name], value[name]) for name in names})
    if get_origin(kind) is tuple:
        return tuple(from_json(get_args(kind)[0], item) for item in value)
    return Path(value) if kind is Path else value

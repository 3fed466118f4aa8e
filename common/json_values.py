"""Conversion between typed values and JSON: records, messages between a run and its workers, yaml of variants."""

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

UNIONS = (Union, types.UnionType)
NOT_FINITE = ("NaN", "Infinity", "-Infinity")


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

    kind: a type made of dataclasses, tuples, mappings, paths, strings and numbers, or a union of these. A field that is
    absent takes its default, and unknown fields are ignored.
    Raises KeyError for an absent field without a default, TypeError for a value of another type.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or origin is Literal:
        return value
    if origin in UNIONS:
        return _one_of(arguments, value)
    if dataclasses.is_dataclass(kind):
        return _instance(kind, _checked(value, dict))
    if origin is tuple:
        return tuple(from_json(arguments[0], item) for item in _checked(value, list | tuple))
    if origin in (Mapping, dict):
        return {name: from_json(arguments[1], item) for name, item in _checked(value, Mapping).items()}
    if kind is float:
        return float(value if value in NOT_FINITE else _checked(value, int | float))
    return Path(value) if kind is Path else _checked(value, kind)


def _instance(kind: Any, values: Mapping[str, Any]) -> Any:
    found = {}
    for name, (hint, needed) in _fields(kind).items():
        if needed or name in values:
            item = values[name]
            try:
                found[name] = from_json(hint, item)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
    return kind(**found)


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """{field of a dataclass: (its type, True without a default)}."""
    hints, missing = get_type_hints(kind), dataclasses.MISSING
    return {
        each.name: (hints[each.name], each.default is missing and each.default_factory is missing)
        for each in dataclasses.fields(kind)
    }


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    """The value by the first of `kinds` that accepts it."""
    errors = []
    for kind in kinds:
        try:
            return from_json(kind, value)
        except (TypeError, KeyError) as error:
            errors.append(error)
    raise errors[0]


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value} is not of type {getattr(kind, '__name__', kind)}")
    return value

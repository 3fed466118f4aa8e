"""Conversion between typed values and JSON: records, messages between a run and its workers, yaml of variants."""

import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]
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
    return _reader(kind)(value)


def _reader(kind: Any) -> Reader:
    """`from_json` of one type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or origin is Literal:
        return _as_it_is
    if kind is Path:
        return Path
    if kind is float:
        return _float
    if origin in UNIONS:
        return partial(_one_of, [_reader(each) for each in arguments])
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return partial(_instance, kind)
    if origin is tuple:
        return partial(_tuple, _reader(arguments[0]))
    if origin in (Mapping, dict):
        return partial(_mapping, _reader(arguments[1]))
    return partial(_same, kind)


def _instance(kind: Any, value: Any) -> Any:
    _check(value, dict)
    found = {}
    for name, (read, needed) in _fields(kind).items():
        if needed or name in value:
            item = value[name]
            try:
                found[name] = read(item)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
    return kind(**found)


@cache
def _fields(kind: type) -> dict[str, tuple[Reader, bool]]:
    """{field of a dataclass: (its reader, True without a default)}. Types are taken apart once: a store has millions
    of values."""
    hints, missing = get_type_hints(kind), dataclasses.MISSING
    return {
        each.name: (_reader(hints[each.name]), each.default is missing and each.default_factory is missing)
        for each in dataclasses.fields(kind)
    }


def _one_of(readers: Sequence[Reader], value: Any) -> Any:
    """The value by the first of `readers` that accepts it."""
    errors = []
    for read in readers:
        try:
            return read(value)
        except (TypeError, KeyError) as error:
            errors.append(error)
    raise errors[0]


def _tuple(read: Reader, value: Any) -> tuple[Any, ...]:
    _check(value, list | tuple)
    return tuple(map(read, value))


def _mapping(read: Reader, value: Any) -> dict[str, Any]:
    if type(value) is not dict:  # isinstance of Mapping takes ten times as long
        _check(value, Mapping)
    return dict(value) if read is _as_it_is else {name: read(item) for name, item in value.items()}


def _as_it_is(value: Any) -> Any:
    return value


def _float(value: Any) -> float:
    if value not in NOT_FINITE:
        _check(value, int | float)
    return float(value)


def _same(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        _check(value, kind)
    return value


def _check(value: Any, kind: Any) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value} is not of type {getattr(kind, '__name__', kind)}")

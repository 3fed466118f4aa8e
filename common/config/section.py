"""Typed access to one section of the configuration; a bad value raises LabError with the full name of its key."""

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf

from common.errors import LabError, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """Range of a whole number, in an annotation: `Annotated[int, Range(32, 1024)]`. high: None, no upper limit."""

    low: int
    high: int | None = None


Natural = Annotated[int, Range(0)]


def absolute(path: str) -> Path:
    """`path` relative to the working folder of this process, made absolute; `~` is the home folder."""
    return Path(os.path.expanduser(path)).absolute()


@dataclass(frozen=True)
class Section:
    """One section of a composed configuration. All methods raise LabError for a value of another type or range.

    values: the section as a dict, with interpolations resolved. path: prefix of its keys, "" at the top or "timing.".
    origins: {full name: key that the value comes from}, to name in an error.
    """

    values: dict[str, Any]
    path: str = ""
    origins: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: DictConfig | ListConfig, path: str = "") -> "Section":
        """The section of an OmegaConf mapping. Raises LabError for a list, OmegaConf's errors for interpolations."""
        values = OmegaConf.to_container(config, resolve=True)
        if not isinstance(values, dict):
            raise LabError(f"{path or 'the configuration'} is a list", "write a mapping of keys to values")
        texts = OmegaConf.to_container(config, resolve=False)
        return cls({str(key): value for key, value in values.items()}, path, dict(_origins(texts, path)))

    def section(self, key: str) -> "Section":
        value = self.values.get(key)
        if not isinstance(value, dict):
            name = f"{self.path}{key}"
            raise LabError(f"{name}={value} is not a section", f"override one of its keys: {name}.KEY=")
        return Section(value, f"{self.path}{key}.", self.origins)

    def read(self, kind: type[T], but: Collection[str] = ()) -> T:
        """The section as a dataclass, a field for each key except `but`; a key `name` may be left over."""
        self.only({"name", *get_type_hints(kind)} - {*but})
        return kind(**self.fields(kind, but))

    def fields(self, kind: type, but: Collection[str] = ()) -> dict[str, Any]:
        """The value of each field of a dataclass except `but`, checked by its type."""
        hints = get_type_hints(kind, include_extras=True)
        return {key: self.value(key, hint) for key, hint in hints.items() if key not in but}

    def value(self, key: str, kind: Any) -> Any:
        """A value, checked by the type of a dataclass field.

        int: at least 1, or an annotated Range; float: above 0; Literal: one of its texts; Path; tuple[T, ...]: a list;
        another dataclass, or Section: a section. With `| None` null is None.
        """
        arguments = get_args(kind)
        if type(None) in arguments:
            return self.value(key, arguments[0]) if self.given(key) else None
        if get_origin(kind) is Annotated:
            return self.whole(key, arguments[1].low, arguments[1].high)
        if get_origin(kind) is Literal:
            return self.choice(key, arguments)
        if get_origin(kind) is tuple:
            return self.texts(key) if arguments[0] is str else self.wholes(key, 0 if arguments[0] is Natural else 1)
        readers: dict[Any, Callable[[str], Any]] = {
            int: lambda key: self.whole(key, 1),
            float: self.number,
            bool: self.flag,
            str: self.text,
            Path: self.location,
            Any: self.values.get,
            Section: self.section,
        }
        return readers[kind](key) if kind in readers else self.section(key).read(kind)

    def choice(self, key: str, known: Collection[str]) -> str:
        """One of the texts `known`."""
        if (value := self.text(key)) not in known:
            raise unknown(self._name(key), value, known)
        return value

    def only(self, valid: Collection[str]) -> None:
        """Raise LabError for a key that is not in `valid`, such as one added by `+key=value`."""
        for key in self.values.keys() - valid:
            raise unknown("key", f"{self.path}{key}", [f"{self.path}{name}" for name in valid])

    def given(self, key: str) -> bool:
        """True if the key has a value other than null."""
        return self.values.get(key) is not None

    def whole(self, key: str, low: int, high: int | None = None) -> int:
        """An integer in low..high; None means no upper limit."""
        return self._whole(key, self.values.get(key), low, high)

    def wholes(self, key: str, low: int) -> tuple[int, ...]:
        """A non-empty list of integers of at least `low`; a single integer counts as a list of one."""
        value = self.values.get(key)
        if value == []:
            raise self._wrong(key, value, "is an empty list", "[N,...]")
        return tuple(self._whole(key, item, low, None) for item in (value if isinstance(value, list) else [value]))

    def number(self, key: str) -> float:
        """A number above zero that fits a float."""
        value = self.values.get(key)
        large = isinstance(value, int) and value > sys.float_info.max
        if large or isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._wrong(key, value, "is not a positive number", "X")
        return float(value)

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "is neither true nor false", "true")
        return value

    def text(self, key: str, blank: bool = False) -> str:
        """A string that is not empty nor, unless `blank`, only white space."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, value, "is not a text", """'"TEXT"'""")
        if not (value if blank else value.strip()):
            raise self._wrong(key, value, "is empty", "TEXT")
        return value

    def location(self, key: str) -> Path:
        """A path, made absolute: worker processes have another working folder."""
        return absolute(self.text(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of non-empty strings; the list may be empty."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self._wrong(key, value, "is not a list of names", """'["a","b"]'""")
        return tuple(value)

    def _name(self, key: str) -> str:
        return self.origins.get(f"{self.path}{key}", f"{self.path}{key}")

    def _wrong(self, key: str, value: Any, fault: str, example: str) -> LabError:
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        return LabError(f"{self._name(key)}={shown} {fault}", f"give {self._name(key)}={example}")

    def _whole(self, key: str, value: Any, low: int, high: int | None) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            span = f"of at least {low}" if high is None else f"in {low}..{high}"
            raise self._wrong(key, value, f"is not a whole number {span}", "N")
        return value


def _origins(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """(full name, origin) of each `ladder: ${options.positions}`, or `positions: ["${options.position}"]`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _origins(inner, f"{name}.{key}" if name and not name.endswith(".") else f"{name}{key}")
        return
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(single, str) and (found := re.fullmatch(r"\$\{([\w.]+)\}", single)):
        yield name, found[1]

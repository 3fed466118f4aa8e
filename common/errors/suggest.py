"""Error for an unknown name: lists the valid names and suggests the closest one."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from common.errors import LabError


def known(kind: str, name: Any, valid: Collection[str]) -> str:
    """`name`, if it is one of `valid`; raises the error of `unknown` for any other value, of any type."""
    if not isinstance(name, str) or name not in valid:
        raise unknown(kind, name, valid)
    return name


def unknown(kind: str, name: Any, valid: Iterable[str]) -> LabError:
    """The error `unknown variant 'vec182'; did you mean 'vec128'? known: ...`, for the caller to raise.

    kind: what the name stands for, such as "variant". valid: the names that exist.
    """
    name, names = str(name), sorted(valid)
    close = get_close_matches(name, names, n=1)
    guess = f"did you mean '{close[0]}'? " if close else ""
    return LabError(f"unknown {kind} '{name}'", f"{guess}known: {', '.join(names)}")

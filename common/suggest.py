"""The error for a name that does not exist: it says which names do, the closest one first."""

from collections.abc import Iterable
from difflib import get_close_matches

from common.errors import LabError


def unknown(kind: str, name: str, known: Iterable[str]) -> LabError:
    """`unknown variant 'vec182'; did you mean 'vec128'? known: ...`"""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    guess = f"did you mean '{close[0]}'? " if close else ""
    return LabError(f"unknown {kind} '{name}'", f"{guess}known: {', '.join(names)}")

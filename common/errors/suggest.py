"""Error for an unknown name: lists the valid names and suggests the closest one."""

from collections.abc import Iterable
from difflib import get_close_matches

from common.errors import LabError


def unknown(kind: str, name: str, valid: Iterable[str]) -> LabError:
    """The error `unknown variant 'vec182'; did you mean 'vec128'? known: ...`, for the caller to raise.

    kind: what the name stands for, such as "variant". valid: the names that exist.
    """
    names = sorted(valid)
    close = get_close_matches(name, names, n=1)
    guess = f"did you mean '{close[0]}'? " if close else ""
    return LabError(f"unknown {kind} '{name}'", f"{guess}known: {', '.join(names)}")

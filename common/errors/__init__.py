"""Errors of the lab: LabError, one line `cause; remedy`, and a subclass for each status of a record."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any


class LabError(Exception):
    """A mistake of the user, or something missing on the machine.

    cause: the fault, with names and figures; remedy: the user's next step. Both are one line. The command line prints
    `error: cause; remedy` and exits with 2; a traceback appears only with `debug=true`.
    report: the full text, such as the whole output of a compiler.
    """

    def __init__(self, cause: str, remedy: str, report: str = "") -> None:
        super().__init__(cause, remedy, report)
        self.cause = " ".join(cause.split())
        self.remedy = " ".join(remedy.split())
        self.report = report

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


class Unfinished(LabError):
    """The budget is too small for the rest. The command line exits with 3; the same command resumes there."""


class CompileError(LabError):
    """The device's compiler rejected the flattened source."""


class Refused(LabError):
    """The request is well formed, but impossible with this device, grid, stack or these weights."""


class Hung(LabError):
    """A launch did not finish. `cause` has the first line of `report`; each line names a place where threads wait."""


class Crashed(LabError):
    """A launch wrote outside its buffers, aborted, or ended with a CUDA error."""


class OutOfMemory(LabError):
    """The GPU, or this machine, has less memory than the stack needs."""


class Mismatched(LabError):
    """A launch left wrong outputs."""


class Race(Crashed):
    """Two unordered accesses of the same memory by different threads, at least one a write.

    report: a line for each pair of source lines.
    """


def known(kind: str, name: Any, valid: Collection[str]) -> str:
    """`name`, if it is one of `valid`; raises the error of `unknown` for any other value, of any type."""
    if not isinstance(name, str) or name not in valid:
        raise unknown(kind, name, valid)
    return name


def unknown(kind: str, name: Any, valid: Iterable[str]) -> LabError:
    """The error `unknown variant 'vec182'; did you mean 'vec128'? known: ...`, for the caller to raise.

    kind: of the name, such as "variant". valid: the existing names.
    """
    name, names = str(name), sorted(valid)
    close = get_close_matches(name, names, n=1)
    guess = f"did you mean '{close[0]}'? " if close else ""
    listed = ", ".join(f"'{each}'" if "," in each else each for each in names)
    return LabError(f"unknown {kind} '{name}'", f"{guess}known: {listed or 'none'}")

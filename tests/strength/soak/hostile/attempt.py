"""One hostile input, the attempt to run it, and the rule that it must keep: refused in one line, nothing written."""

import contextlib
import importlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common import ROOT
from common.cache.log import LOG, note_once

SECONDS = 120  # until a command that should be refused at once counts as hanging


@dataclass(frozen=True)
class Case:
    """One input that a command must refuse.

    module       as in `python -m MODULE`
    environment  changes to the environment: the command then runs in a process of its own; None: in this process.
                 A value of None removes the variable.
    """

    title: str
    argv: tuple[str, ...]
    module: str = "experiments"
    environment: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class Attempt:
    """Outcome of a command: exit code, both streams, and the files below the watched folder that it changed."""

    code: int
    out: str
    err: str
    changed: tuple[str, ...] = field(default_factory=tuple)


def attempt(case: Case, watched: Path) -> Attempt:
    """Run `case`; `watched` holds the store and whatever else must stay as it is."""
    before = _contents(watched)
    code, out, err = _in_process(case) if case.environment is None else _in_child(case)
    after = _contents(watched)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Attempt(code, out, err, tuple(changed))


def violation(case: Case, found: Attempt) -> str | None:
    """The broken part of the rule in one line; None where the input was refused as it must be.

    The rule: exit code 2, nothing on stdout, exactly one line `error: cause; remedy` and no traceback on stderr, and no
    file written or changed.
    """
    errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
    faults = [
        (found.code != 2, f"exit code {found.code}"),
        (bool(found.out), f"stdout {found.out[-200:]!r}"),
        (len(errors) != 1, f"{len(errors)} error lines"),
        (len(errors) == 1 and "; " not in errors[0], "no remedy"),
        ("Traceback" in found.err, "a traceback"),
        (bool(found.changed), f"changed {', '.join(found.changed)}"),
    ]
    broken = [text for wrong, text in faults if wrong]
    return f"{case.title}: {'; '.join(broken)}: {found.err[-300:]!r}" if broken else None


def violations(cases: Sequence[Case], watched: Path) -> list[str]:
    """Attempt each case; one line for each that breaks the rule."""
    found = (violation(case, attempt(case, watched)) for case in cases)
    return [line for line in found if line]


def _in_process(case: Case) -> tuple[int, str, str]:
    module = importlib.import_module(case.module)
    main = module.main if hasattr(module, "main") else importlib.import_module(f"{case.module}.__main__").main
    out, err = io.StringIO(), io.StringIO()
    note_once.cache_clear()  # each case is a first time
    notes = logging.StreamHandler(err)  # a test runner may have handlers of its own, and then stderr gets no notes
    LOG.addHandler(notes)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(case.argv))
    finally:
        LOG.removeHandler(notes)
    return code, out.getvalue(), err.getvalue()


def _in_child(case: Case) -> tuple[int, str, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | dict(case.environment or {})
    try:
        done = subprocess.run(
            [sys.executable, "-m", case.module, *case.argv],
            env={name: value for name, value in environment.items() if value is not None},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return -1, "", f"not done after {SECONDS} s"
    return done.returncode, done.stdout, done.stderr


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

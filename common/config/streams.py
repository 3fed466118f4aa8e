"""Standard streams of a command: a closed stream, or a reader that has gone (`| head`), only loses the text.

A standard output that fails in another way, such as on a full disk, is a LabError.
"""

import os
import sys
from typing import Any, TextIO

from common.errors import LabError


def open_closed() -> None:
    """Open /dev/null in place of closed standard streams, so that no other file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


class Stream:
    """`stream`, a file of this process if writing to it can fail. needed: False if its text may be lost."""

    def __init__(self, stream: TextIO, needed: bool) -> None:
        self._stream, self._needed = stream, needed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        """Drop all further text, also the rest that Python flushes at its end. Raises LabError."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if self._needed and not isinstance(error, BrokenPipeError):
            cause = f"the output cannot be printed: {error.strerror}"
            raise LabError(cause, "send it to another file; records already written are kept") from error

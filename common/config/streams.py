"""Standard streams of a command: one that is closed, and a reader that has gone (`| head`), cost nothing but the text.

A standard output that fails in another way, such as on a full disk, is a LabError.
"""

import os
import sys
from typing import Any, TextIO

from common.errors import LabError


def open_closed() -> None:
    """Open /dev/null in place of standard streams that are closed, so that no other file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


class Stream:
    """`stream`, which must be a file of this process where writing to it fails. needed: whether its text is needed."""

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
        """Nothing more goes there, also not when Python ends and flushes what is left. Raises LabError."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if self._needed and not isinstance(error, BrokenPipeError):
            cause = f"the output cannot be printed: {error.strerror}"
            raise LabError(cause, "send it to another file; records already written are kept") from error

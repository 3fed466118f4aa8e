"""Standard output whose failure, such as a full disk, is a LabError; a reader that has gone (`| head`) is none."""

import os
from typing import Any, TextIO

from common.errors import LabError


class Stdout:
    """`stream`, which must be a file of this process where writing to it fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._ended(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._ended(error) from error

    def _ended(self, error: OSError) -> Exception:
        """What to raise; nothing more goes there, also not when Python ends and flushes what is left."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if isinstance(error, BrokenPipeError):
            return error
        cause = f"the output cannot be printed: {error.strerror}"
        return LabError(cause, "send it to another file; records already written are kept")

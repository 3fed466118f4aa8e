"""Files that are written once, under a name that says what is in them."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from common.errors import LabError


def cached(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of `path`, made and kept there if it is missing. The name must hold a hash of all that decides it.

    The whole file appears or nothing, so two processes, a full disk and a killed one leave no torn file.
    Raises LabError when the folder cannot be written, and whatever `make` raises.
    """
    if path.is_file():
        return path.read_bytes()
    content = make()
    scratch = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(scratch, path)
    except OSError as error:
        if scratch and os.path.exists(scratch):
            os.unlink(scratch)
        raise LabError(
            f"the cache folder {path.parent} cannot be written: {error.strerror}", "choose another one with cache=DIR"
        ) from error
    return content

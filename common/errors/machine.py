"""Errors of the machine, such as a full disk: they end the run, and are no verdict about a variant."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from common.errors import LabError, OutOfMemory

ELSEWHERE = "choose another place with cache=DIR, results=FILE, TMPDIR or CUPY_CACHE_DIR"
SPACE = f"free some space there, or {ELSEWHERE}"
MEMORY = "free memory, or end other processes, and give the command again"
LIMIT = "raise this limit (ulimit -a), or end other processes"
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), SPACE),
    **dict.fromkeys((errno.EACCES, errno.EROFS, errno.EIO), ELSEWHERE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN), LIMIT),
    errno.ENOMEM: MEMORY,
}


class MachineError(LabError):
    """The machine fails: no space, no memory, a failing tool. It ends a run with exit code 2."""


@contextmanager
def system_errors(what: str) -> Iterator[None]:
    """Raise MachineError, or OutOfMemory, for `what` without space, memory or permission, or at a limit."""
    try:
        yield
    except MemoryError as error:
        raise OutOfMemory(f"{what}: {str(error) or 'no memory'}", MEMORY) from error
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise OutOfMemory(f"{what}: {error.strerror}", MEMORY) from error
        if error.errno in REMEDIES:
            raise of_system(error, what) from error
        raise


def make_writable(folder: Path, remedy: str) -> None:
    """Make a folder, if it is missing, and write there once, before minutes of work. Raises LabError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror}", remedy) from None


def of_system(error: OSError, what: str) -> MachineError:
    """Any OSError as a MachineError."""
    where = f", {error.filename}" if error.filename else ""
    return MachineError(f"{what}: {error.strerror or error}{where}", REMEDIES.get(error.errno or 0, ELSEWHERE))

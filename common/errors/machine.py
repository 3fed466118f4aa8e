"""Errors of the machine, such as a full disk: they end the run, and are no verdict about a variant."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from common.errors import LabError, OutOfMemory

ELSEWHERE = "choose another place with cache=DIR and TMPDIR"
SPACE = f"free some space there, or {ELSEWHERE}"
MEMORY = "free memory, or end other processes, and give the command again"
LIMIT = "raise this limit (ulimit -a), or end other processes"
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), SPACE),
    **dict.fromkeys((errno.EROFS, errno.EIO), ELSEWHERE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN), LIMIT),
    errno.ENOMEM: MEMORY,
}
# Compilers' messages for them. For a child process they name the signal that ended it.
SAID = {os.strerror(code): remedy for code, remedy in REMEDIES.items()} | {
    "out of memory": MEMORY,
    "memory exhausted": MEMORY,
    "Killed signal": MEMORY,
    "[Killed]": MEMORY,
    "Terminated signal": "give the command again",
    "[Terminated]": "give the command again",
    "Bus error": SPACE,  # by a mapped file on a full disk
    "File size limit exceeded": SPACE,
}


class MachineError(LabError):
    """The machine fails: no space, no memory, a vanished file. It ends a run with exit code 2."""


class Vanished(MachineError):
    """A file has vanished, as when another process clears the cache: to be made once more."""


@contextmanager
def system_errors(what: str) -> Iterator[None]:
    """Raise MachineError, or OutOfMemory, for `what` if the system is out of space or memory, or at a limit."""
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


def of_system(error: OSError, what: str) -> MachineError:
    """Any OSError as a MachineError; Vanished for a missing file or folder."""
    kind = Vanished if isinstance(error, FileNotFoundError) else MachineError
    where = f", {error.filename}" if error.filename else ""
    remedy = REMEDIES.get(error.errno or 0, ELSEWHERE)
    return kind(f"{what}: {error.strerror or error}{where}", remedy)


def of_output(said: str, code: int, command: Sequence[str]) -> MachineError | None:
    """The machine's error in a tool's output `said`, if any. code: exit status; below 0: the signal that ended it."""
    tool, files = os.path.basename(command[0]), [word for word in command[1:] if not word.startswith("-")]
    for line in said.splitlines():
        for text, remedy in SAID.items():
            if text in line:
                return MachineError(f"{tool} failed: {_cause(line)}", remedy)
        if any(f"{file}: {os.strerror(errno.ENOENT)}" in line for file in files):
            return Vanished(
                f"{tool} failed: {_cause(line)}", "give the command again, and leave its files where they are"
            )
    return MachineError(f"{tool} was ended by signal {-code}", MEMORY) if code < 0 else None


def _cause(line: str) -> str:
    """A compiler's message without the source location before it, which is not at fault."""
    return line.rpartition("error: ")[2]

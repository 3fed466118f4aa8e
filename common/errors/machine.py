"""Errors of the machine, such as a full disk: they end what is under way, and are no verdict about a variant."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from common.errors import LabError, OutOfMemory

ELSEWHERE = "choose another place with cache=DIR and TMPDIR"
SPACE = f"free some space there, or {ELSEWHERE}"
MEMORY = "free memory, or end what else runs, and give the command again"
LIMIT = "raise the limit of it (ulimit -a), or end what else runs"
REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), SPACE),
    **dict.fromkeys((errno.EROFS, errno.EIO), ELSEWHERE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN), LIMIT),
    errno.ENOMEM: MEMORY,
}
# What compilers print of them. They say of a process that they have started by which signal it ended.
SAID = {os.strerror(code): remedy for code, remedy in REMEDIES.items()} | {
    "out of memory": MEMORY,
    "memory exhausted": MEMORY,
    "Killed signal": MEMORY,
    "[Killed]": MEMORY,
    "Terminated signal": "give the command again",
    "[Terminated]": "give the command again",
    "Bus error": SPACE,  # of a file that is mapped, when the disk is full
    "File size limit exceeded": SPACE,
}


class MachineError(LabError):
    """The machine cannot do what is asked: no space, no memory, a file that is gone. It ends a run with exit code 2."""


class Vanished(MachineError):
    """A file that was there is gone, as when another process clears the cache: to be made once more."""


@contextmanager
def system_errors(what: str) -> Iterator[None]:
    """Raise MachineError, or OutOfMemory, for `what` where the system has no space, no memory or no more of a limit."""
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
    """Any error of the system, as one of the machine; Vanished for a file or folder that is not there."""
    kind = Vanished if isinstance(error, FileNotFoundError) else MachineError
    where = f", {error.filename}" if error.filename else ""
    remedy = REMEDIES.get(error.errno or 0, ELSEWHERE)
    return kind(f"{what}: {error.strerror or error}{where}", remedy)


def of_output(said: str, code: int, command: Sequence[str]) -> MachineError | None:
    """The error of the machine that a tool names in what it `said` before it ended with exit status `code`, if any."""
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
    """The part of a compiler's line after the text that it has just read, which is not at fault."""
    return line.rpartition("error: ")[2]

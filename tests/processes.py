"""State of a process by the kernel: its children, and whether it is still running."""

import os

HANGS_S = 800  # seconds after which a process that a test waits for is hung; an idle machine needs a fiftieth


def children(pid: int) -> list[int]:
    """Processes that any thread of `pid` has started; a list by thread is gone where its thread ends meanwhile."""
    running = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [one for one in running if _stat(one)[1:2] == [str(pid)]]


def alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def _stat(pid: int) -> list[str]:
    """State, parent and more of a process; nothing if it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []

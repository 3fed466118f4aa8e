"""State of a process by the kernel: its children, and whether it is still running."""

HANGS_S = 800  # seconds after which a process that a test waits for is hung; an idle machine needs a fiftieth


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

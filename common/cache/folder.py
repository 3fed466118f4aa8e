"""Folder of the cache: its place, the files in it, and the limit of its size.

It has a folder for each kind of file. Only files named by a hash, with a suffix of `FILE`, belong to the cache and are
ever removed: `cache=` may name a folder that also holds other files.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

NAME = "megakernel-lab"
FILE = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{64})\.(bf16|cubin|ptx|rows|sass|sha256|so|taps)(\.[-0-9]+\.part)?")
# Opened again by name after the check: a library when it is loaded, a part when it is renamed. Every other file is read
# or mapped through the descriptor that was checked, which outlives the name.
LIBRARY, NEEDED_S = "so", 3600.0
UNSEEN = 0.01  # share of the limit that a process writes before it looks at all files again: 0.3 s for 40,000 files


class CachedFile(NamedTuple):
    """One file of the cache; `size` in bytes, `used` (last written, found or read) in seconds since 1970.

    reopened: it is opened by its name after the check.
    """

    path: Path
    size: int
    used: float
    reopened: bool


def place() -> Path:
    """`megakernel-lab` in the user's cache folder (XDG)."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir(NAME)).absolute()


def files(root: Path) -> list[CachedFile]:
    """All files of the cache in `root`, the least recently used first."""
    return sorted(_scan(root), key=lambda file: file.used)


def keep_below(root: Path, size: float) -> None:
    """Set the limit for `make_room`: the cache in `root` exceeds `size` bytes by `UNSEEN` of it a process at most."""
    global _limit
    _limit = _Limit(root.absolute(), size)


def make_room(newest: Path, size: int) -> None:
    """Remove the least recently used files until the cache keeps its limit, but not `newest`, of `size` bytes.

    Other processes may do the same at the same time; at worst more files go than necessary, and are made anew.
    """
    if _limit is None or not newest.absolute().is_relative_to(_limit.root):
        return
    _limit.unseen += size
    if _limit.unseen <= UNSEEN * _limit.size:
        return
    _limit.unseen = 0
    found = files(_limit.root)
    excess = sum(file.size for file in found) - _limit.size
    for file in found:
        if excess <= 0:
            break
        needed = file.reopened and time.time() - file.used < NEEDED_S
        if file.path != newest and not needed:
            with suppress(PermissionError):  # in a shared folder, a file of another user
                file.path.unlink(missing_ok=True)
                excess -= file.size


@dataclass
class _Limit:
    root: Path
    size: float
    unseen: float = inf  # bytes that this process has written since it last looked; it looks after its first file


_limit: _Limit | None = None


def _scan(root: Path) -> Iterator[CachedFile]:
    for path in root.glob("*/*"):
        if match := FILE.fullmatch(path.name):
            with suppress(FileNotFoundError):  # removed meanwhile by another process
                state = path.stat()
                reopened = match[1] == LIBRARY or bool(match[2])
                yield CachedFile(path, state.st_size, max(state.st_atime, state.st_mtime), reopened)

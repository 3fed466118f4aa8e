"""Folder of the cache: its place, the files in it, and the limit of its size.

It has a folder for each kind of file. Only files named by a hash, with a suffix of `KINDS`, belong to the cache and are
ever removed: `cache=` may name a folder that also holds other files.
"""

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from common.cache.log import note_once
from common.errors import LabError

NAME = "megakernel-lab"
KINDS = {
    ".bf16": "weights",
    ".sha256": "hashes",
    ".o": "kernels",
    ".so": "kernels",
    ".exe": "kernels",
    ".cubin": "cubins",
    ".ptx": "ptx",
    ".rows": "decoded kernels",
    ".sass": "listings",
    ".taps": "references",
}
UNFINISHED = "unfinished"
FILE = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{64})(\.\w+)(\.[-0-9]+\.part)?")
# Files of these kinds are opened again after the check: a kernel when it is loaded, a part when it is renamed. All
# others are read, or mapped, through the open file that was checked, which outlives the file's name.
NEEDED, NEEDED_S = ("kernels", UNFINISHED), 3600.0
SHARE = 64  # one part in so many of the room that was left may be written before the folder is looked at again


class CachedFile(NamedTuple):
    """One file of the cache; `size` in bytes, `used` (last written, found or read) in seconds since 1970."""

    path: Path
    kind: str
    size: int
    used: float

    def remove(self) -> bool:
        """True if the file is gone."""
        with suppress(FileNotFoundError):
            try:
                self.path.unlink()
            except OSError:  # in a shared folder, a file of another user
                return False
        return True


def ensure_home() -> None:
    """Set HOME, with a note, if neither it nor the user is known, as in containers.

    Libraries would otherwise make a folder with the name `~` where they run.
    """
    if os.path.expanduser("~") == "~":
        os.environ["HOME"] = str(_temporary())
        note_once(f"there is no home folder; for this command it is {os.environ['HOME']}")


def place() -> Path:
    """`megakernel-lab` in the user's cache folder (XDG); if that is not writable, a temporary folder and a note."""
    from platformdirs import user_cache_dir

    usual = Path(user_cache_dir(NAME)).absolute()
    if _writable(usual):
        return usual
    folder = _temporary()
    note_once(f"{usual} cannot be written; the cache is in {folder}, or give cache=DIR")
    return folder


def files(root: Path) -> list[CachedFile]:
    """All files of the cache in `root`, the least recently used first."""
    return sorted(_scan(root), key=lambda file: file.used)


def keep_below(root: Path, size: float) -> None:
    """Set the limit for `make_room`: the cache in `root` stays below `size` bytes."""
    global _limit, _unseen
    _limit, _unseen = (root.absolute(), size), 0.0


def make_room(newest: Path) -> None:
    """Remove the least recently used files until the cache keeps its limit. `newest`, just written, stays.

    Other processes may do the same at the same time; at worst more files go than necessary, and are made anew. Far
    below the limit most calls look at nothing: to list thousands of files takes longer than to write one.
    """
    global _unseen
    root, size = _limit
    if root is None or not newest.absolute().is_relative_to(root):
        return
    with suppress(FileNotFoundError):  # removed meanwhile by another process
        _unseen -= newest.stat().st_size
    if _unseen > 0:
        return
    found = files(root)
    excess = sum(file.size for file in found) - size
    for file in found:
        if excess <= 0:
            break
        needed = file.kind in NEEDED and time.time() - file.used < NEEDED_S
        if file.path != newest and not needed and file.remove():
            excess -= file.size
    _unseen = -excess / SHARE


_limit: tuple[Path | None, float] = (None, 0.0)
_unseen = 0.0  # bytes that this process may write before it looks again


def _scan(root: Path) -> Iterator[CachedFile]:
    with suppress(OSError):
        for folder in [entry.path for entry in os.scandir(root) if entry.is_dir()]:
            for entry in os.scandir(folder):
                match = FILE.fullmatch(entry.name)
                if match is None or match[1] not in KINDS:
                    continue
                with suppress(FileNotFoundError):  # removed meanwhile by another process
                    state = entry.stat()
                    kind = UNFINISHED if match[2] else KINDS[match[1]]
                    yield CachedFile(Path(entry.path), kind, state.st_size, max(state.st_atime, state.st_mtime))


def _temporary() -> Path:
    """This user's folder in the temporary one. Raises LabError if another user made it, or may write to it."""
    folder = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # The libraries in it are loaded, so no other user may have put them there.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LabError(f"{folder} is not a folder that only this user can write", "set HOME, or remove it")
    return folder


def _writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)

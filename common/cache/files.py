"""Files of the cache: named by a hash of their inputs, written whole or not at all, checked at every use.

Each ends with a checksum of its content, in the same file so that both appear at once; loaders of ELF ignore bytes
after its sections. XXH3 (https://xxhash.com) reads at the speed of memory: 1.2 GB in 0.08 s on one core. It finds
damage by accident; it is no defence against an attacker.
"""

import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from xxhash import xxh3_128_digest

from common.cache.folder import make_room
from common.cache.log import LOG
from common.errors.machine import of_system

CHECKSUM = 16  # bytes


def cached(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of `path`; made and kept there if it is missing or damaged.

    Raises MachineError, and errors of `make`.
    """
    with opened(path) as file:
        if file:
            return file.read()[:-CHECKSUM]
    content = make()
    with writing(path) as part:
        part.write_bytes(content)
    return content


def intact(path: Path) -> bool:
    """True if `path` is there and undamaged, by `opened`."""
    with opened(path) as file:
        return file is not None


@contextmanager
def opened(path: Path, size: int | None = None) -> Iterator[BinaryIO | None]:
    """`path`, open for reading, if it is there and undamaged, with `size` bytes if given; else None.

    Another process may remove it at any time; an open file keeps its content. A damaged file is named in a warning,
    because the caller makes it again. Raises MachineError when it cannot be read.
    """
    file = None
    with usable(path), suppress(FileNotFoundError):
        file = path.open("rb")
    if not file:
        yield None
        return
    with file:
        with usable(path):
            sound = _sound(file.fileno(), size)
        if not sound:
            LOG.warning("note: %s is damaged; it is made again", path)
        yield file if sound else None


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary name to write a file under; at the end it gets its checksum and is renamed to `path`.

    Two writers, a full disk or a killed process leave no partial file at `path`. Raises MachineError when it cannot be
    written.
    """
    part = path.with_name(f"{path.name}.{secrets.randbits(64)}.part")  # processes of two containers may have one id
    try:
        with usable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
            with part.open("r+b") as file:
                length = os.fstat(file.fileno()).st_size
                checksum = _checksum(file.fileno(), length)
                file.seek(length)
                file.write(checksum)
            part.replace(path)
            make_room(path, length + CHECKSUM)
    finally:
        with suppress(OSError):  # renamed, or never made
            part.unlink()


@contextmanager
def making(path: Path) -> Iterator[bool]:
    """Context for one process at a time. True after waiting for another process, which may have written `path`.

    Two that make it at once do no harm, but cost twice. Raises MachineError when the folder cannot be written.
    """
    lock = path.with_name(f"{path.name}.lock")
    with usable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    with file:
        waited = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield waited
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise MachineError, which names the folder of `path`, for an OSError inside the context."""
    try:
        yield
    except OSError as error:
        raise of_system(error, f"the cache folder {path.parent} cannot be used") from error


def _sound(file: int, size: int | None) -> bool:
    """True if the checksum is right; the file's time is then set to now, as file systems may not record reads."""
    state = os.fstat(file)
    length = state.st_size - CHECKSUM
    if length < 0 or size not in (None, length) or _checksum(file, length) != os.pread(file, CHECKSUM, length):
        return False
    with suppress(OSError):  # a file of another user
        os.utime(file, ns=(time.time_ns(), state.st_mtime_ns))
    return True


def _checksum(file: int, length: int) -> bytes:
    if not length:
        return xxh3_128_digest(b"")
    with mmap.mmap(file, length, access=mmap.ACCESS_READ) as content:
        return xxh3_128_digest(content)

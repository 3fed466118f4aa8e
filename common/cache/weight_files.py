"""The folder of packed weights, mapped into memory, and the remembered hashes of checkpoints."""

import hashlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from common.cache.files import cached, opened, writing
from common.lazy import torch

# Weights made or checked at once. Too small for torch to split over threads, which on a busy machine wait for each
# other at every operation; and it fits the cache of one core.
BLOCK = 1 << 15


def mapped(file: Path, size: int, pieces: "Iterable[tuple[int, torch.Tensor]]") -> "torch.Tensor":
    """`file` as a memory-mapped bf16 tensor [size]; written first when it is missing or damaged.

    pieces: (offset in elements, bf16 [n] contiguous), taken only when the file must be written; gaps become zeros.
    Raises LabError when the file cannot be written, and whatever `pieces` raises; neither leaves a part behind.
    """
    with opened(file, 2 * size) as stream:
        if stream:
            return _map(stream, size)
    with writing(file) as part, part.open("w+b") as stream:
        os.posix_fallocate(stream.fileno(), 0, 2 * size)  # a full disk fails now, and writing is twice as fast
        for offset, piece in pieces:
            stream.seek(2 * offset)
            stream.write(piece.view(torch.int16).numpy().data)
        stream.flush()
        return _map(stream, size)  # the open file: another process may remove the name at once


def _map(stream: BinaryIO, size: int) -> "torch.Tensor":
    """The first `size` elements of an open file, copy-on-write: a stray write stays in this process."""
    content = mmap.mmap(stream.fileno(), 2 * size, access=mmap.ACCESS_COPY)
    return torch.frombuffer(content, dtype=torch.bfloat16, count=size)


def content_sha(files: tuple[Path, ...], cache_dir: Path) -> str:
    """sha256 of one file, as sha256sum prints it; of several, sha256 of their hashes joined in the order given.

    Raises LabError when a hash cannot be remembered in `cache_dir`, OSError when a file cannot be read.
    """
    shas = [file_sha(file, cache_dir) for file in files]
    return shas[0] if len(shas) == 1 else hashlib.sha256("".join(shas).encode()).hexdigest()


def file_sha(file: Path, cache_dir: Path) -> str:
    """sha256 of `file`, remembered in `cache_dir` until its size, times or inode change."""
    path = file.resolve()
    stat = path.stat()
    state = (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)

    def sha() -> bytes:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest().encode()

    return cached(cache_dir / f"{hashlib.sha256(repr(state).encode()).hexdigest()}.sha256", sha).decode()

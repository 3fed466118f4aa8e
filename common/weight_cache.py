"""The folder of packed weights: files named by content, written whole or not at all, mapped into memory."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from common.errors import LabError

# Weights made or checked at once. torch splits nothing this small over threads, which on a busy machine wait for each
# other at every operation; and it stays in the cache of one core.
BLOCK = 1 << 15
SETTLED = 2.0  # seconds after which a file's time stamp can be trusted to move when the file changes again


def mapped(file: Path, size: int, pieces: Iterable[tuple[int, torch.Tensor]]) -> torch.Tensor:
    """`file` as a memory-mapped bf16 tensor [size]; written first when it is not there in full.

    pieces: (offset in elements, bf16 [n] contiguous), taken only when the file must be written; gaps become zeros.
    Raises LabError when the file cannot be written, and whatever `pieces` raises; neither leaves a part behind.
    """
    try:
        complete = file.is_file() and file.stat().st_size == 2 * size
    except OSError as error:
        raise _unusable(file, error) from error
    if not complete:
        _write(file, ((2 * offset, piece.view(torch.int16).numpy()) for offset, piece in pieces), 2 * size)
    # Not shared: mapped from a file that is opened for reading, so a stray write stays in this process.
    return torch.from_file(str(file), shared=False, size=size, dtype=torch.bfloat16)


def content_sha(files: tuple[Path, ...], cache_dir: Path) -> str:
    """sha256 of one file, as sha256sum prints it; of several, sha256 of their hashes joined in the order given.

    Raises LabError when a hash cannot be remembered in `cache_dir`, OSError when a file cannot be read.
    """
    shas = [_file_sha(file, cache_dir) for file in files]
    return shas[0] if len(shas) == 1 else hashlib.sha256("".join(shas).encode()).hexdigest()


def _file_sha(file: Path, cache_dir: Path) -> str:
    """sha256 of `file`, remembered in `cache_dir` until its size, times or inode change."""
    path = file.resolve()
    stat = path.stat()
    state = [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
    memory = cache_dir / f"{hashlib.sha256(str(path).encode()).hexdigest()}.json"
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
        if known["state"] == state:
            return known["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # never hashed, or a file we did not write: hash now
    with path.open("rb") as stream:
        sha = hashlib.file_digest(stream, "sha256").hexdigest()
    # A file written a moment ago may be written again within one tick of the file system's clock.
    if time.time() - max(stat.st_mtime, stat.st_ctime) > SETTLED:
        content = json.dumps({"state": state, "sha256": sha}).encode()
        _write(memory, [(0, content)], len(content))
    return sha


def _write(file: Path, chunks: Iterable[tuple[int, object]], size: int) -> None:
    """Write (byte offset, buffer) chunks to `file`, `size` bytes, atomically. Raises LabError when that fails."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)  # a full disk is told now, and writing is twice as fast
            for offset, chunk in chunks:
                stream.seek(offset)
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut could leave the right size with wrong content
        part.replace(file)
    except OSError as error:
        raise _unusable(file, error) from error
    finally:
        with contextlib.suppress(OSError):  # renamed, or never made
            part.unlink()


def _unusable(file: Path, error: OSError) -> LabError:
    return LabError(
        f"the weights cache {file.parent} cannot be used: {error.strerror or error}",
        "free some space, or choose another cache folder",
    )

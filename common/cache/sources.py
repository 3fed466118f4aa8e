"""Sources of the lab that decide what a file of the cache holds: part of the file's key."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from common import ROOT


def digest_of(paths: Iterable[Path], root: Path) -> str:
    """Digest of files: their names below `root` and their contents."""
    digest = hashlib.sha256()
    for path in sorted({*paths}):
        digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def sources_sha(*patterns: str) -> str:
    """Digest of the lab's sources by globs, such as common/model/*.py."""
    return digest_of((path for pattern in patterns for path in ROOT.glob(pattern)), ROOT)

"""Sources of the lab that decide what a file of the cache holds: part of the file's key."""

import hashlib
from functools import cache

from common import ROOT


@cache
def sources_sha(*patterns: str) -> str:
    """Digest of the names and contents of sources. patterns: globs below the lab, such as common/model/*.py."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()

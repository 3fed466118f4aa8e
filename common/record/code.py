"""Digest of the lab's code: it decides answers that no single kernel's text does."""

import hashlib
from functools import cache
from pathlib import Path

from common import ROOT
from common.stacks.catalog import TUNED

FOLDERS = ("common", "conf", "experiments", "variants")
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".hpp", ".yaml")


@cache
def code_sha(root: Path = ROOT) -> str:
    """16 hex digits of all sources below FOLDERS, by name and content.

    Records and reports are none, nor are stacks that a search wrote: their knobs are in the text of their kernels.
    """
    digest = hashlib.sha256()
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)
    for path in sorted(path for path in found if not path.name.startswith(TUNED)):
        digest.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]

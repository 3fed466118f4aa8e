"""Part of the cases of a test, and its random inputs: drawn from the commit, so the same here and in CI.

Every commit has another part. LAB_SAMPLE=all takes all cases; LAB_SAMPLE=NAME takes the part of that name, such as
one that a failure has printed.
"""

import hashlib
import os
import random
import subprocess
from collections.abc import Iterable
from typing import TypeVar

from common import ROOT
from common.record.provenance import code_sha

T = TypeVar("T")
ALL = "all"


def tree(root: os.PathLike[str] = ROOT) -> str:
    """12 hex digits of the content of the last commit below `root`; of the sources themselves where git knows none."""
    done = subprocess.run(["git", "-C", root, "rev-parse", "HEAD:./"], capture_output=True, text=True)
    return (code_sha() if done.returncode else done.stdout)[:12]


TREE = tree()
# The process that starts the others sets it for all of them: they must collect the same tests.
SAMPLE = os.environ.setdefault("LAB_SAMPLE", TREE)


def sampled(cases: Iterable[T], number: int) -> list[T]:
    """`number` of the cases, in their order."""
    cases = list(cases)
    if SAMPLE == ALL or number >= len(cases):
        return cases
    chosen = random.Random(f"{SAMPLE} {len(cases)}").sample(range(len(cases)), number)
    return [cases[at] for at in sorted(chosen)]


def seed_for(test: str) -> int:
    """The seed of one test's random inputs, 0..2^31-1: LAB_SEED, else drawn from the sample and the test's name."""
    drawn = hashlib.sha256(f"{TREE if SAMPLE == ALL else SAMPLE} {test}".encode()).digest()
    return int(os.environ.get("LAB_SEED") or int.from_bytes(drawn[:4], "big") >> 1)

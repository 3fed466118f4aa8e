"""A random part of the cases of a test: another part in each run, the same in all processes of a run.

LAB_SAMPLE=all, and a machine with an NVIDIA driver, take all cases; a number repeats the part of an earlier run.
"""

import ctypes
import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
ALL = "all"


def _driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


# The process that starts the others sets it for all of them: they must collect the same tests.
SAMPLE = os.environ.setdefault("LAB_SAMPLE", ALL if _driver() else str(random.SystemRandom().randrange(2**31)))


def sampled(cases: Iterable[T], number: int) -> list[T]:
    """`number` of the cases, in their order."""
    cases = list(cases)
    if SAMPLE == ALL or number >= len(cases):
        return cases
    chosen = random.Random(f"{SAMPLE} {len(cases)}").sample(range(len(cases)), number)
    return [cases[at] for at in sorted(chosen)]

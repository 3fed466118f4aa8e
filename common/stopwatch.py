"""Seconds that this process has spent in each part of its work, without those of the parts inside it."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic as clock  # tests replace it

# Seconds by part; the thread that does a row's work is the only one that opens parts.
SPENT: defaultdict[str, float] = defaultdict(float)
_inside = [0.0]  # seconds of the parts that have ended inside each open part, the innermost last


@contextmanager
def part(name: str) -> Iterator[None]:
    """The work of the context is a part of this name."""
    began = clock()
    _inside.append(0.0)
    try:
        yield
    finally:
        whole = clock() - began
        SPENT[name] += whole - _inside.pop()
        _inside[-1] += whole


@contextmanager
def spent(seconds: dict[str, float]) -> Iterator[None]:
    """Add to `seconds` what each part takes in this context."""
    before = SPENT.copy()
    try:
        yield
    finally:
        for name, now in SPENT.items():
            if more := now - before.get(name, 0.0):
                seconds[name] = seconds.get(name, 0.0) + more

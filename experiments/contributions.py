"""Who brought what: effects of a set of variants from the times of all its legal subsets. Pure arithmetic.

`times` maps each legal subset to seconds (or any cost). Legal orders add one variant at a time and never leave the
legal subsets; where all subsets are legal they are all permutations, and the shares are Shapley's (1953).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations

Subset = frozenset[str]
Times = Mapping[Subset, float]


def subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All subsets in the order of their size, each in the order of `names`."""
    for size in range(len(names) + 1):
        yield from combinations(names, size)


def main_effect(name: str, times: Times) -> float:
    """Mean change of the time when `name` comes to a subset without it, over all legal pairs."""
    changes = [
        times[have | {name}] - time for have, time in times.items() if name not in have and have | {name} in times
    ]
    return sum(changes) / len(changes)


def interaction(a: str, b: str, times: Times) -> float | None:
    """Mean of t(ab) - t(a) - t(b) + t(): below 0 two save more together than alone. None if the pair is never legal."""
    found = [
        times[have | {a, b}] - times[have | {a}] - times[have | {b}] + time
        for have, time in times.items()
        if not have & {a, b} and {have | {a}, have | {b}, have | {a, b}} <= times.keys()
    ]
    return sum(found) / len(found) if found else None


def shapley(names: Sequence[str], times: Times) -> dict[str, float]:
    """What each variant takes off the time, averaged over all legal orders of adding them; they sum to the total.

    Raises ValueError when no order is legal.
    """
    saved = dict.fromkeys(names, 0.0)
    orders = 0
    for order in permutations(names):
        steps = [frozenset(order[:size]) for size in range(len(order) + 1)]
        if all(step in times for step in steps):
            orders += 1
            for name, before, after in zip(order, steps, steps[1:], strict=False):
                saved[name] += times[before] - times[after]
    if not orders:
        raise ValueError("no order of these variants is legal")
    return {name: total / orders for name, total in saved.items()}

"""Main effects, interactions and Shapley shares of variants, from the times of all legal subsets of them.

`times` maps each legal subset to seconds (or any cost). A legal order adds one variant at a time, and every subset on
the way is legal. If all subsets are legal, every permutation is a legal order and the shares are Shapley values (1953).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations

Subset = frozenset[str]
Times = Mapping[Subset, float]


def subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All subsets, smallest first; the names within one are in the order of `names`."""
    for size in range(len(names) + 1):
        yield from combinations(names, size)


def main_effect(name: str, times: Times) -> float | None:
    """Mean change of the time when `name` is added, over all pairs of subsets with and without it; None without one."""
    changes = [
        times[have | {name}] - time for have, time in times.items() if name not in have and have | {name} in times
    ]
    return sum(changes) / len(changes) if changes else None


def interaction(a: str, b: str, times: Times) -> float | None:
    """Mean of t(ab) - t(a) - t(b) + t(): below 0 the two save more together than alone. None if no such four exist."""
    found = [
        times[have | {a, b}] - times[have | {a}] - times[have | {b}] + time
        for have, time in times.items()
        if not have & {a, b} and {have | {a}, have | {b}, have | {a, b}} <= times.keys()
    ]
    return sum(found) / len(found) if found else None


def shapley(names: Sequence[str], times: Times) -> dict[str, float]:
    """Time that each variant saves, averaged over all legal orders of adding them; the shares sum to the total saving.

    {} where every order has a subset without a time.
    """
    saved = dict.fromkeys(names, 0.0)
    orders = 0
    for order in permutations(names):
        steps = [frozenset(order[:size]) for size in range(len(order) + 1)]
        if all(step in times for step in steps):
            orders += 1
            for name, before, after in zip(order, steps, steps[1:], strict=False):
                saved[name] += times[before] - times[after]
    return {name: total / orders for name, total in saved.items()} if orders else {}

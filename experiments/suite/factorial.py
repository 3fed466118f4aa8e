"""Factorial experiment: all legal subsets of some variants, main effects, interactions of pairs, Shapley shares."""

from itertools import combinations
from math import isnan
from typing import Any

from common.errors import LabError
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, check_stack
from experiments.experiment import Experiment
from experiments.tables.result_table import ResultTable
from experiments.timing.effects import Times, interaction, main_effect, shapley, subsets

MOST = 7  # variants: 128 subsets, 5,040 orders
WITHOUT = "effects and pairs are means over the others, shares over the orders that need none of them."
NOTES = (
    "A row of kind `subset` is a stack; `effect` is the mean change when a variant is added, over all subsets "
    "without it; `pair` is the interaction: below 0 two variants save more together than the sum of each alone, "
    "above 0 less; `share` is the variant's Shapley value: the time it saves, averaged over all legal orders of adding "
    "the variants. Shares sum to the total.",
)


def ask(experiment: Experiment) -> ResultTable:
    """Rows of four kinds: subset, effect, pair, share; times in microseconds a token."""
    names, position = experiment.options.texts("variants"), experiment.position
    _check(names)
    stacks = legal(experiment, names)
    experiment.need_gpu()
    timed = experiment.times(stacks, [position])
    times = {frozenset(stack.variants): time.us for stack, (time,) in timed if not isnan(time.us)}
    notes, table = list(NOTES), analysis(names, times)
    if len(times) < len(stacks):
        notes.append(f"{len(stacks) - len(times)} of {len(stacks)} subsets have no time: {WITHOUT}")
    return experiment.answer(f"how much {', '.join(names)} save, alone and together", table, notes, keys=2)


def legal(experiment: Experiment, names: tuple[str, ...]) -> list[Stack]:
    """The stacks of all legal subsets, against the baseline."""
    stacks = []
    for subset in subsets(names):
        try:
            check_stack(subset, read_catalog())
        except LabError:
            continue
        stacks.append(experiment.composed(subset, ()))
    experiment.check_given(stacks)
    return stacks


def analysis(names: tuple[str, ...], times: Times) -> list[dict[str, Any]]:
    """The table out of the times; `share %` is of the total saved."""
    order = {name: at for at, name in enumerate(names)}
    rows: list[dict[str, Any]] = [
        {"kind": "subset", "variants": " + ".join(sorted(have, key=order.__getitem__)) or "baseline", "us": time}
        for have, time in times.items()
    ]
    for name in names:
        if (effect := main_effect(name, times)) is not None:
            rows.append({"kind": "effect", "variants": name, "us": effect})
    for a, b in combinations(names, 2):
        if (both := interaction(a, b, times)) is not None:
            both = round(both, 6) + 0.0  # sums of floats end near 0, or -0
            rows.append({"kind": "pair", "variants": f"{a} x {b}", "us": both})
    shares = shapley(names, times)
    total = sum(shares.values())
    rows += [
        {"kind": "share", "variants": name, "us": saved, "share %": 100 * saved / total if total else None}
        for name, saved in shares.items()
    ]
    return rows


def _check(names: tuple[str, ...]) -> None:
    """Raise LabError for a list that is too long, or has no legal order."""
    if not 1 <= len(names) <= MOST:
        raise LabError(f"options.variants names {len(names)} variants", f"give 1 to {MOST}")
    if len(set(names)) < len(names):
        raise LabError("options.variants names a variant twice", "name each once")
    check_stack(names, read_catalog())

"""Who brought what: every legal subset of a list of variants, main effects, interactions in pairs, Shapley shares."""

from itertools import combinations
from typing import Any

import pandas as pd

from common.catalog import read_catalog
from common.errors import LabError
from common.stack import Stack, check_stack
from experiments.contributions import Times, interaction, main_effect, shapley, subsets
from experiments.inquiry import TIME, Inquiry, microseconds
from experiments.outcome import MEASURED, PREDICTED, Outcome

MOST = 7  # variants: 128 subsets, 5,040 orders
NOTES = (
    "A row of kind `subset` is a stack; `effect` is the mean change when a variant is added, over all subsets "
    "without it; `pair` is how much more (or, above 0, less) two save together than each for itself; `share` is the "
    "variant's Shapley value: what it takes off the time, averaged over all legal orders of adding them. Shares sum "
    "to the total.",
)


def ask(inquiry: Inquiry) -> Outcome:
    """Rows of four kinds: subset, effect, pair, share; times in microseconds a token."""
    names, position = inquiry.options.texts("variants"), inquiry.options.whole("position", low=0)
    _check(names)
    stacks = legal(inquiry, names)
    if inquiry.on_gpu:
        found = [microseconds(record, position) for record in inquiry.measure(stacks)]
        if inquiry.left_out:
            raise LabError(f"not every subset has a time: {inquiry.left_out[0]}", "mend it, or leave the variant out")
    else:
        gpu = inquiry.gpu(inquiry.options.text("gpu"))
        found = [1e6 * inquiry.predict(one.variants, one.knobs, gpu, position).seconds for one in stacks]
    times = {frozenset(stack.variants): time for stack, time in zip(stacks, found, strict=True)}
    question = f"which of {', '.join(names)} brings how much, alone and together"
    basis, missing = (MEASURED, None) if inquiry.on_gpu else (PREDICTED, TIME)
    notes = NOTES if inquiry.on_gpu else (*NOTES, f"Predicted for {gpu.name} at position {position}.")
    return Outcome("factorial", question, pd.DataFrame(analysis(names, times)), basis, notes, missing, keys=2)


def legal(inquiry: Inquiry, names: tuple[str, ...]) -> list[Stack]:
    """The stacks of all legal subsets, against the baseline."""
    stacks = []
    for subset in subsets(names):
        try:
            check_stack(subset, read_catalog())
        except LabError:
            continue
        stacks.append(inquiry.composed(subset, ()))
    return stacks


def analysis(names: tuple[str, ...], times: Times) -> list[dict[str, Any]]:
    """The table out of the times; `share %` is of the total saved."""
    order = {name: at for at, name in enumerate(names)}
    rows: list[dict[str, Any]] = [
        {"kind": "subset", "variants": " + ".join(sorted(have, key=order.__getitem__)) or "baseline", "us": time}
        for have, time in times.items()
    ]
    rows += [{"kind": "effect", "variants": name, "us": main_effect(name, times)} for name in names]
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
    """Raise LabError for a list that is too long, or whose variants do not go together in any order."""
    if not 1 <= len(names) <= MOST:
        raise LabError(f"options.variants names {len(names)} variants", f"give 1 to {MOST}")
    if len(set(names)) < len(names):
        raise LabError("options.variants names a variant twice", "name each once")
    check_stack(names, read_catalog())

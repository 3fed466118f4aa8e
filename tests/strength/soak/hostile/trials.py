"""All hostile inputs, in the proportions of a soak: `hostile(count, ...)`."""

import random
from itertools import islice
from pathlib import Path

from common.record.store import Store
from experiments.lab import Lab
from tests.strength.soak.hostile import python_calls
from tests.strength.soak.hostile.attempt import attempt, violation
from tests.strength.soak.hostile.command_lines import commands, flags, options, runs
from tests.strength.soak.hostile.environments import environments

# Relative; an environment takes a process of its own, and seconds.
SHARES = {
    "runs": 28,
    "commands": 14,
    "options": 10,
    "flags": 4,
    "python": 10,
}
ENVIRONMENTS = 4


def hostile(count: int, folder: Path, seed: int, environments_too: bool = True) -> list[str]:
    """Try `count` hostile inputs below `folder`; one line for each that was accepted, silent, or refused wrongly."""
    rng = random.Random(seed)
    watched = folder / "store"
    store = Store(watched / "records.jsonl")
    store.append({"kind": "kept"})
    fixed = ("device=ptx", "timing=none", "archs=[]", f"cache={folder / 'cache'}", f"results={store.path}")
    generators = {
        "runs": runs(rng, fixed),
        "commands": commands(rng, fixed),
        "options": options(rng, fixed),
        "flags": flags(rng, fixed),
        "environments": environments(rng, fixed),
    }
    shares = SHARES | ({"environments": ENVIRONMENTS} if environments_too else {})
    found: list[str] = []
    for name, share in shares.items():
        number = max(1, round(count * share / sum(shares.values())))
        if name in generators:
            for case in islice(generators[name], number):
                broken = violation(case, attempt(case, watched))
                found += [broken] if broken else []
        else:
            found += python_calls.violations(number, Lab(*fixed, model="tiny"), rng)
    return found

"""All hostile inputs, in the proportions of a soak."""

import random
from itertools import islice
from pathlib import Path

from common.record.store import Store
from experiments.lab import Lab
from tests.strength.soak.hostile import attempt, python_calls
from tests.strength.soak.hostile.command_lines import commands, flags, options, runs
from tests.strength.soak.hostile.environments import environments

# Inputs of each kind in seventy; an environment takes a process of its own, and seconds.
SHARES, CALLS = {runs: 28, commands: 14, options: 10, flags: 4, environments: 4}, 10


def hostile(count: int, folder: Path, seed: int) -> list[str]:
    """Try `count` hostile inputs below `folder`; one line for each that was accepted, silent, or refused wrongly."""
    rng, watched = random.Random(seed), folder / "store"
    store = Store(watched / "records.jsonl")
    store.append({"kind": "kept"})
    fixed = ("device=ptx", "timing=none", "archs=[]", f"cache={folder / 'cache'}", f"results={store.path}")

    def number(share: int) -> int:
        return max(1, round(count * share / 70))

    found = [attempt.violations([*islice(kind(rng, fixed), number(share))], watched) for kind, share in SHARES.items()]
    found.append(python_calls.violations(number(CALLS), Lab(*fixed, model="tiny"), rng))
    return [line for some in found for line in some]

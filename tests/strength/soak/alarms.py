"""False alarms: random stacks of correct variants on random trials, each with fresh weights, inputs and schedules.

Half of them run with the race detector.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.config.resolve import model_named
from common.devices.ptx.device import PtxDevice
from common.errors import LabError, Refused
from common.stacks.catalog import BASELINE, Catalog, read_catalog
from common.stacks.knobs import WARP, Knob
from common.stacks.stack import Stack, choose_stacks, knob_values, ordered, with_needed
from common.validate.prove import prove
from common.validate.trials import GIVEN, TRIALS, Trial
from tests.composed import without_bit_equal

WARPS = (1, 2, 3, 4, 8)  # in a block
TRAITS = ("tiny", "llama_tiny", "qwen2_tiny")  # models that have those of every family
# A variant's own condition, such as an even number of slots: these knobs do not belong together.
REFUSED = re.compile(r"variants/\S+ error: static assertion failed")
MOST = 4096  # threads of a grid: a step of a larger one takes seconds


def false_alarms(count: int, folder: Path, seed: int) -> list[str]:
    """Validate `count` times; one line for each stack that does not pass, with its knobs, trial and seed."""
    rng, catalog = random.Random(seed), read_catalog()
    alarms, validated = [], 0
    while validated < count:
        fresh, trial = rng.randrange(2**31), _trial(rng)
        stack = random_stack(rng, catalog, trial.threads)
        device = PtxDevice(folder / "kernels", seed=fresh, races=rng.random() < 0.5)
        try:
            verdict = prove(device, catalog, stack, trial, folder, fresh)
            found = "" if verdict.passed else str(verdict)
        except LabError as error:
            if REFUSED.search(str(error)) or isinstance(error, Refused):  # more shared memory than a block may have
                continue
            found = f"{type(error).__name__} {error}; seed {fresh}"
        validated += 1
        if found:
            knobs = knob_values(catalog, stack.variants, stack.knobs)
            place = f"{trial.blocks} blocks of {trial.threads} threads"
            alarms.append(f"{stack.name} {knobs} on {trial.name}, {place}, races={device.races}: {found}")
    return alarms


def random_stack(rng: random.Random, catalog: Catalog, threads: int) -> Stack:
    """Some variants that may stand in one stack, in any order that they allow, with random values of their knobs."""
    names: list[str] = []
    for name in rng.sample([name for name in catalog.variants if name != BASELINE], rng.randint(0, 6)):
        added = [one for one in with_needed(name, catalog) if one not in names]
        excluded = {other for one in (*names, *added) for other in catalog.variants[one].excludes}
        if excluded.isdisjoint((*names, *added)):
            names += added
    rng.shuffle(names)
    names = [*ordered(names, catalog)]
    values: Mapping[str, Any] = {
        knob.name: _value(rng, knob, threads) for name in names for knob in catalog.variants[name].knobs
    }
    stack = choose_stacks(catalog, "", names, values, threads)[0]
    return replace(stack, parent=without_bit_equal(stack.variants, catalog))


def _trial(rng: random.Random) -> Trial:
    """One of the trials with the traits of some family and another block size, on a grid that runs quickly."""
    trial, threads = rng.choice(TRIALS), WARP * rng.choice(WARPS)
    blocks = rng.randint(1, MOST // threads)
    traits = model_named(rng.choice(TRAITS))
    return replace(trial.like(traits), threads=threads, blocks=min(blocks, trial.blocks), knobs=GIVEN)


def _value(rng: random.Random, knob: Knob, threads: int) -> Any:
    """A random value of a knob; of a number any of its orders of magnitude."""
    if knob.kind == "ratio":
        consumers = rng.randint(1, threads // WARP)
        return f"{threads // WARP - consumers}:{consumers}"
    if knob.kind == "choice":
        return rng.choice(knob.choices)
    if knob.kind == "list":
        return rng.sample(knob.choices, rng.randint(0, len(knob.choices)))
    low, high = replace(knob, auto="").ends(threads)
    return min(high, round(low * (high / low) ** rng.random())) if low > 0 else rng.randint(low, high)

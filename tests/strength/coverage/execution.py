"""Execution of stacks with coverage: the starts of trials, without the reference, which changes nothing that they run.

Not in `__main__`: a spawned process cannot import its functions.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import torch

from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import load
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack
from common.validate.prove import text_of
from common.validate.scenarios import drawn
from common.validate.trials import Trial, chosen
from common.validate.values import weights_of
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.progress import Progress
from tests.strength.coverage.covered import CoveredDevice, Executed, Place

Found = Sequence[tuple[str, Mapping[Place, Executed]]]  # title of a stack, and its places


def places(model: Model, stack: Stack, trials: Iterable[Trial], cache: Path, seed: int) -> dict[Place, Executed]:
    """Rows that a stack executes on trials with the traits and formats of `model`, on the PTX device."""
    torch.set_num_threads(1)
    catalog, device = read_catalog(), CoveredDevice(stack.variants, cache / "kernels", seed=seed)
    for trial in (each.like(model) for each in trials):
        trial = trial.with_room(text_of(catalog, stack, trial).tokens_per_step)
        layout = Layout(trial.model)
        packed = load("synthetic", trial.model, None, cache / "weights", seed)[2].flat
        weights = weights_of(trial.weights, packed, layout, seed)
        starts = drawn(trial.starts, layout, weights, torch.Generator().manual_seed(seed))
        program = device.compile(text_of(catalog, stack, trial))
        with closing(device.session(program, weights, trial.blocks)) as session:
            for start in (each.on(session) for each in starts):
                session.reset(start.ids, start.position, start.held, len(start.ids), start.barriers)
                session.run(start.steps)
    return device.places


def executed(config: RunConfig, show: Progress, others: Sequence[tuple[Model, Stack]] = ()) -> tuple[Found, list[str]]:
    """Coverage of each stack of `config`, and a line for each stack that did not end.

    others: stacks that are executed as well, each with the traits and formats of a model. Each has a process of its
    own, as many at a time as there are cores.
    """
    setup = Setup(config, show)
    setup.check()
    every, trials = [*((setup.model, stack) for stack in config.stacks), *others], chosen(config.validation.trials)

    def one(each: tuple[Model, Stack]) -> dict[Place, Executed] | LabError:
        show.begin(f"execute {title(*each)}")
        try:
            return apart(config.timeout_s, places, *each, trials, config.cache, config.seed)
        except LabError as error:
            return error

    with ThreadPoolExecutor(1 if setup.model.large else os.cpu_count()) as pool:
        answers = list(zip((title(*each) for each in every), pool.map(one, every), strict=True))
    failed = [f"{name}: {answer}" for name, answer in answers if isinstance(answer, LabError)]
    return [(name, {} if isinstance(answer, LabError) else answer) for name, answer in answers], failed


def title(model: Model, stack: Stack) -> str:
    """The stack's name, the formats of its weights and cache where one is below bf16."""
    formats = (*map(str, model.formats), model.kv_format)
    return stack.name if set(formats) <= {"bf16"} else f"{stack.name} with {'/'.join(formats)}"

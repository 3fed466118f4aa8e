"""Validations with coverage. Not in `__main__`: a spawned process cannot import its functions."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property

from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.shapes import Model
from common.stacks.stack import Stack
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.progress import Progress, Quiet
from tests.strength.coverage.covered import CoveredDevice, Executed, Place

Found = Sequence[tuple[str, Mapping[Place, Executed]]]  # title of a stack, and its places


class CoveredSetup(Setup):
    """Setup of a run whose device counts what `stack` executes."""

    def __init__(self, config: RunConfig, stack: Stack) -> None:
        super().__init__(config, Quiet())
        self._stack = stack

    @cached_property
    def device(self) -> CoveredDevice:
        config = self.config
        assert config.ptx is not None
        arch, timeout = int(config.ptx.arch.removeprefix("sm_")), config.ptx.timeout_s
        return CoveredDevice(self._stack.variants, config.cache / "kernels", arch, config.seed, timeout=timeout)

    @property
    def racing(self) -> CoveredDevice:
        return self.device


def executed(config: RunConfig, show: Progress, others: Sequence[tuple[Model, Stack]] = ()) -> tuple[Found, list[str]]:
    """Coverage by the validation of each stack of `config`, and a line for each stack that did not pass.

    others: stacks that are validated as well, by plain trials with the traits and formats of a model.

    Each stack has a process of its own, as many at a time as there are cores.
    """
    setup = Setup(config, show)
    setup.check()

    def one(each: tuple[RunConfig, Stack]) -> tuple[str, Mapping[Place, Executed]]:
        show.begin(f"validate {title(*each)}")
        try:
            return apart(config.timeout_s, _validate, *each)
        except LabError as error:
            return str(error), {}

    plain = replace(config.validation, trials="plain")
    every = [(config, stack) for stack in config.stacks]
    every += [(replace(config, model=model, validation=plain), stack) for model, stack in others]
    with ThreadPoolExecutor(1 if setup.model.large else os.cpu_count()) as pool:
        answers = list(zip((title(*each) for each in every), pool.map(one, every), strict=True))
    failed = [f"{name}: {wrong}" for name, (wrong, _) in answers if wrong]
    return [(name, places) for name, (_, places) in answers], failed


def _validate(config: RunConfig, stack: Stack) -> tuple[str, Mapping[Place, Executed]]:
    """Reason why the stack did not pass, "" if it did; and what was executed."""
    import torch

    from experiments.run.steps import LabStack

    torch.set_num_threads(1)
    setup = CoveredSetup(config, stack)
    verdict = LabStack(setup, stack).validate()
    wrong = "" if verdict.passed else f"{verdict.mismatch}; seed {verdict.seed}"
    return wrong, setup.device.places


def title(config: RunConfig, stack: Stack) -> str:
    """The stack's name, the formats of its weights and cache where one is below bf16."""
    model = config.model
    formats = (*map(str, model.formats), model.kv_format) if model else ()
    return stack.name if set(formats) <= {"bf16"} else f"{stack.name} with {'/'.join(formats)}"

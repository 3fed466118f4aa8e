"""Validations with coverage. Not in `__main__`: a spawned process cannot import its functions."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.format import read_formats
from common.model.shapes import Model
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, choose_stacks
from experiments.run.setup import Setup
from experiments.tables.progress import Progress, Quiet
from tests.strength.coverage.covered import CoveredDevice, Executed, Place
from tests.strength.kept import each_apart
from tests.strength.mutants.generated import SCALED, VERIFY_ROWS, VERIFY_STREAM

# Variants, formats and knobs.
OTHERS: tuple[tuple[Sequence[str], str, Mapping[str, Any]], ...] = (
    *((names, formats, {}) for names, formats in SCALED.items()),
    (("graph",), "bf16", {"how": "pdl"}),
    (("redundant_rmsnorm", "vec128", "l2_prefetch", "verify"), "bf16", {}),
    *((VERIFY_ROWS, "bf16", {"tokens": tokens}) for tokens in (2, 4)),
    (VERIFY_STREAM, "bf16", {"chunk": 16}),
)
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


def others(model: Model, threads: int) -> list[tuple[Model, Stack]]:
    """Stacks with text that the catalog's in bf16 with usual knobs lack, each with `model` in its formats."""
    return [
        (model.in_formats(*read_formats(formats)), stack)
        for names, formats, knobs in OTHERS
        for stack in choose_stacks(read_catalog(), BASELINE, names, knobs, threads)
    ]


def executed(config: RunConfig, show: Progress, more: Sequence[tuple[Model, Stack]] = ()) -> tuple[Found, list[str]]:
    """Coverage by the validation of each stack of `config`, and a line for each stack that did not pass.

    more: stacks that are validated as well, by plain trials with the traits and formats of a model. Each has a process
    of its own, as many at a time as there are cores.
    """
    setup = Setup(config, show)
    setup.check()
    plain = replace(config.validation, trials="plain")
    every = [(config, stack) for stack in config.stacks]
    every += [(replace(config, model=model, validation=plain), stack) for model, stack in more]
    processes = 1 if setup.model.large else os.cpu_count() or 1
    found, failed = list[tuple[str, Mapping[Place, Executed]]](), []
    for case, answer in each_apart(_validate, every, processes, config.timeout_s, __name__):
        show.begin(f"validated {title(*case)}")
        wrong, places = (str(answer), {}) if isinstance(answer, LabError) else answer
        found.append((title(*case), places))
        failed += [f"{title(*case)}: {wrong}"] if wrong else []
    return found, failed


def _validate(case: tuple[RunConfig, Stack]) -> tuple[str, Mapping[Place, Executed]]:
    """Reason why the stack did not pass, "" if it did; and what was executed."""
    import torch

    from experiments.run.steps import LabStack

    torch.set_num_threads(1)
    config, stack = case
    setup = CoveredSetup(config, stack)
    verdict = LabStack(setup, stack).validate()
    wrong = "" if verdict.passed else f"{verdict.mismatch}; seed {verdict.seed}"
    return wrong, setup.device.places


def title(config: RunConfig, stack: Stack) -> str:
    """The stack's name, the formats of its weights and cache where one is below bf16."""
    model = config.model
    formats = (*map(str, model.formats), model.kv_format) if model else ()
    return stack.name if set(formats) <= {"bf16"} else f"{stack.name} with {'/'.join(formats)}"

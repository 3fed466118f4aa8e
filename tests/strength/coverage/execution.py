"""Validations with coverage. Not in `__main__`: a spawned process cannot import its functions."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.shapes import Model
from common.stacks.stack import Stack
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.progress import Progress, Quiet
from tests.strength.coverage.covered import CoveredDevice, covered
from tests.strength.coverage.items import Item, items


class CoveredSetup(Setup):
    """Setup of a run with a counting device, into `folder`."""

    def __init__(self, config: RunConfig, folder: Path, show: Progress) -> None:
        super().__init__(config, show)
        self._folder = folder

    @cached_property
    def device(self) -> CoveredDevice:
        config = self.config
        assert config.host is not None
        settings = config.seed, config.host.workers, config.host.timeout_s
        return CoveredDevice(config.cache / "kernels", self._folder, *settings)


def executed(
    config: RunConfig, folder: Path, show: Progress, others: Sequence[tuple[Model, Stack]] = ()
) -> tuple[Mapping[Item, int], list[str]]:
    """Coverage by the validation of the stacks of `config`, and a line for each stack that did not pass.

    others: stacks that are validated as well, by plain trials with the traits and formats of a model.

    Each stack has a process of its own, as many at a time as there are cores; what gcov counts is below `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="data-", dir=folder))
    try:
        setup = CoveredSetup(config, data, show)
        setup.check()

        def one(each: tuple[RunConfig, Stack]) -> str:
            show.begin(f"validate {title(*each)}")
            try:
                return apart(config.timeout_s, _validate, *each, data)
            except LabError as error:
                return f"{title(*each)}: {error}"

        plain = replace(config.validation, trials="plain")
        every = [(config, stack) for stack in config.stacks]
        every += [(replace(config, model=model, validation=plain), stack) for model, stack in others]

        with ThreadPoolExecutor(1 if setup.model.large else os.cpu_count()) as pool:
            failed = list(filter(None, pool.map(one, every)))
        show.begin("read what gcov counted")
        return items(covered(data)), failed
    finally:
        shutil.rmtree(data)


def _validate(config: RunConfig, stack: Stack, folder: Path) -> str:
    """Reason why the stack did not pass; "" if it did."""
    import torch

    from experiments.run.steps import LabStack

    torch.set_num_threads(1)
    verdict = LabStack(CoveredSetup(config, folder, Quiet()), stack).validate()
    return "" if verdict.passed else f"{title(config, stack)}: {verdict.mismatch}; seed {verdict.seed}"


def title(config: RunConfig, stack: Stack) -> str:
    """The stack's name, and the formats of its weights and cache where one is below bf16."""
    model = config.model
    formats = (*map(str, model.formats), model.kv_format) if model else ()
    return stack.name if set(formats) <= {"bf16"} else f"{stack.name} with {'/'.join(formats)}"

"""Validations with coverage. Not in `__main__`: a spawned process cannot import its functions."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from common.config.run_config import RunConfig
from common.errors import LabError
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


def executed(config: RunConfig, folder: Path, show: Progress) -> tuple[Mapping[Item, int], list[str]]:
    """Coverage by the validation of the stacks of `config`, and a line for each stack that did not pass.

    Each stack has a process of its own, as many at a time as there are cores; what gcov counts is below `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="data-", dir=folder))
    try:
        setup = CoveredSetup(config, data, show)
        setup.check()

        def one(stack: Stack) -> str:
            show.begin(f"validate {stack.name}")
            try:
                return apart(config.timeout_s, _validate, config, stack, data)
            except LabError as error:
                return f"{stack.name}: {error}"

        with ThreadPoolExecutor(1 if setup.model.large else os.cpu_count()) as pool:
            failed = list(filter(None, pool.map(one, config.stacks)))
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
    return "" if verdict.passed else f"{stack.name}: {verdict.mismatch}; seed {verdict.seed}"

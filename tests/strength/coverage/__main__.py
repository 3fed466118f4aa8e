"""Coverage of the CUDA text by a validation: `python -m tests.strength.coverage --help`."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import refuse_runs_keys, resolve
from common.config.run_config import RunConfig
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.output import closing_lines
from experiments.tables.progress import Progress, Quiet, progress
from experiments.tables.result_table import print_result, record_result
from tests.strength.coverage import gcov
from tests.strength.coverage.covered import CoveredDevice, covered
from tests.strength.coverage.items import Item, items
from tests.strength.coverage.reasons import read_reasons
from tests.strength.coverage.table import table, tracefile

TRACEFILE = "coverage.info"


class CoveredSetup(Setup):
    """Setup of a run whose device counts, into `folder`."""

    def __init__(self, config: RunConfig, folder: Path, show: Progress) -> None:
        super().__init__(config, show)
        self._folder = folder

    @cached_property
    def device(self) -> CoveredDevice:
        config = self.config
        assert config.host is not None
        settings = config.seed, config.host.workers, config.host.timeout_s
        return CoveredDevice(config.cache / "kernels", self._folder, *settings)


def run(cfg: DictConfig) -> int:
    """Validate, record the table and print it. Raises LabError.

    Returns 0 if every stack passed, else 1; of all variants with all trials also 1 for a hole without a reason.
    """
    config = resolve(cfg)
    refuse_runs_keys(config, "a coverage build")
    if not config.host:
        raise LabError(f"coverage is counted on the host device, not on {config.device.name}", "leave out device=")
    gcov.tool()
    folder = config.results.parent / "coverage"
    with progress(2 + len(config.stacks)) as show:
        found, failed = executed(config, folder, show)
    result = table(found, read_reasons())
    lines = [
        f"Stacks: {', '.join(stack.name for stack in config.stacks)}.",
        *(f"not validated: {each}" for each in failed),
    ]
    result = replace(result, notes=(*lines, *result.notes))
    file = folder / TRACEFILE
    file.write_text("\n".join([*tracefile(found), ""]))
    about = {"seed": config.seed, "stacks": [stack.name for stack in config.stacks], "validation": config.validation}
    kept = record_result(result, Store(config.results), about | {"knobs": config.knobs, "threads": config.threads})
    print_result(result, config.json)
    if not config.json:
        print(f"For a browser: genhtml {file}")
        print(closing_lines([kept], config.results))
    names = {stack.name for stack in config.stacks}
    whole = names >= set(read_catalog().variants) and config.validation.trials == "all"
    return int(bool(failed) or (whole and any(row["no reason"] for row in result.rows)))


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
    """Why the stack did not pass; "" if it did."""
    import torch

    from experiments.run.steps import LabStack

    torch.set_num_threads(1)
    verdict = LabStack(CoveredSetup(config, folder, Quiet()), stack).validate()
    return "" if verdict.passed else f"{stack.name}: {verdict.mismatch}; seed {verdict.seed}"


main = partial(run_task, run, "coverage")

if __name__ == "__main__":
    raise SystemExit(main())

"""Compile, validate, measure, record and report: `python -m experiments --help`."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from common.config.cli import MULTIRUN, run_task
from common.config.resolve import resolve
from common.errors import LabError
from experiments.tables.output import Job, Output
from experiments.tables.progress import progress


def run(cfg: DictConfig, output: Output) -> int:
    """Run every stack of the configuration; 0 if all passed, else 1. Raises LabError for a mistake in it."""
    output.started += 1
    config = resolve(cfg)
    if config.task != "run":
        from experiments.suite import answer

        return answer(config)
    from experiments.run.sweep import STEPS, open_sweep
    from experiments.tables.row import row_of

    ended = None
    with progress(1 + STEPS * len(config.stacks)) as show, open_sweep(config, show) as sweep:
        try:
            sweep.run()  # each stack in a process of its own: compile, validate, measure; and record it here
        except (KeyboardInterrupt, LabError) as error:
            ended = error
    where = str(config.results)
    rows = [replace(row_of(sweep.records[index]), results=where) for index in sorted(sweep.records)]
    output.add(Job(rows, sweep.setup.model.name, config), at_once=not _multirun())
    if ended:
        raise ended
    return int(any(row.verdict != "PASSED" for row in rows))


def _multirun() -> bool:
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    argv, output = sys.argv[1:] if argv is None else argv, Output()
    code = run_task(partial(run, output=output), "config", argv, after=output.close)
    if not code and not output.started and set(argv) & set(MULTIRUN):
        print("each job prints into its own log; python -m experiments.show lists their records", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())

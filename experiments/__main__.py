"""Compile, validate, measure, record and report: `python -m experiments --help`."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from common.config.cli import guarded, run_task
from common.errors import LabError
from experiments.run.choice import run_config
from experiments.tables.output import Job, show_jobs
from experiments.tables.progress import progress
from experiments.tables.run_row import Row
from experiments.tables.run_table import show_json

if TYPE_CHECKING:
    from experiments.run.sweep import Sweep


def run(cfg: DictConfig, jobs: list[Job]) -> int:
    """Run every stack of the configuration; 0 if all passed, else 1. Raises LabError for a mistake in it.

    jobs: takes the rows, for a table of all jobs; with json=true they are printed here.
    """
    config = run_config(cfg)
    if config.task != "run":
        from experiments.suite import answer

        return answer(config)
    if config.reproduce:
        from experiments.run.reproduce import reproduce

        return reproduce(config.reproduce, config)
    from experiments.run.sweep import STEPS, open_sweep

    ended = None
    with progress(1 + STEPS * len(config.stacks)) as show, open_sweep(config, show) as sweep:
        try:
            sweep.run()  # each stack in a process of its own: compile, validate, measure; and record it here
        except (KeyboardInterrupt, LabError) as error:
            ended = error
    rows = rows_of(sweep)
    if config.json:
        show_json(rows)
    else:
        jobs.append(Job(rows, sweep.setup.model.name, config))
    if ended:
        raise ended
    return int(any(row.verdict != "PASSED" for row in rows))


def rows_of(sweep: "Sweep") -> list[Row]:
    """Findings of each stack so far."""
    from experiments.run.fit import gpus_for
    from experiments.tables.row import row_of

    where = str(sweep.config.results)
    rows = [replace(row_of(sweep.records[index]), results=where) for index in sorted(sweep.records)]
    if len(sweep.config.stacks) == 1 and rows:
        source = sweep.setup.source(sweep.config.stacks[0])
        with suppress(LabError):  # without NVRTC; an error of the text is in the row
            rows = [
                replace(rows[0], where=gpus_for(source, sweep.config.cache / "cubins") if source.shared_knobs else "")
            ]
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    jobs: list[Job] = []
    code = run_task(partial(run, jobs=jobs), "config", argv)
    return max(code, guarded(lambda: show_jobs(jobs)))


if __name__ == "__main__":
    raise SystemExit(main())

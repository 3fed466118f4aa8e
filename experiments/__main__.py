"""Compile, validate, measure, record and report: `python -m experiments --help`."""

from collections.abc import Sequence
from functools import partial

from omegaconf import DictConfig

from common.config.cli import guarded, run_task
from common.config.resolve import resolve
from common.errors import LabError
from experiments.tables.progress import progress
from experiments.tables.run_table import Job, show_jobs, show_json


def run(cfg: DictConfig, jobs: list[Job]) -> int:
    """Run every stack of the configuration; 0 if all passed, else 1. Raises LabError for a mistake in it.

    jobs: takes the rows, for a table of all jobs; with json=true they are printed here.
    """
    config = resolve(cfg)
    if config.task != "run":
        from experiments.suite import answer

        return answer(config)
    from experiments.run.sweep import STEPS, open_sweep

    ended = None
    with progress(1 + STEPS * len(config.stacks)) as show, open_sweep(config, show) as sweep:
        try:
            sweep.run()  # each stack in a process of its own: compile, validate, measure; and record it here
        except (KeyboardInterrupt, LabError) as error:
            ended = error
    where = str(config.results)
    rows = [sweep.records[index] | {"results": where} for index in sorted(sweep.records)]
    if config.json:
        show_json(rows)
    else:
        jobs.append(Job(rows, sweep.setup.model.name, config))
    if ended:
        raise ended
    return int(any(row["status"] != "PASSED" for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    jobs: list[Job] = []
    code = run_task(partial(run, jobs=jobs), "config", argv)
    return max(code, guarded(lambda: show_jobs(jobs)))


if __name__ == "__main__":
    raise SystemExit(main())

"""Compile, validate, measure, record and report: `python -m experiments --help`."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from common.cli import launch
from common.config import resolve
from common.errors import LabError
from experiments.progress import progress

if TYPE_CHECKING:
    from experiments.sweep import Sweep
    from experiments.table import Row


def run(cfg: DictConfig) -> int:
    """Run every stack of the configuration; 0 if all passed, else 1. Raises LabError for a mistake in it."""
    config = resolve(cfg)
    if config.task != "run":
        from experiments.suite import answer

        return answer(config)
    if config.reproduce:
        from experiments.reproduce import reproduce

        return reproduce(config)
    from experiments.sweep import STEPS, prepare

    ended = None
    with progress(1 + STEPS * len(config.stacks)) as show, prepare(config, show) as sweep:
        try:
            sweep.run()  # each stack in a process of its own: compile, validate, measure; and record it here
        except (KeyboardInterrupt, LabError) as error:
            ended = error
    rows = report(sweep)
    if ended:
        raise ended
    return int(any(row.verdict != "PASSED" for row in rows))


def report(sweep: "Sweep") -> "list[Row]":
    """Print what has been found, as tables or as JSON lines, and return its rows."""
    from experiments.prediction.forecast import forecasts
    from experiments.rows import row_of
    from experiments.table import show_json, show_tables

    config, device = sweep.config, sweep.config.device
    rows = [row_of(sweep.records[index]) for index in sorted(sweep.records)]
    if config.host:
        known = forecasts(config, sweep.show)
        rows = [replace(row, forecast=known.get(row.variant)) for row in rows]
    if config.json:
        show_json(rows)
    elif rows:
        heading = f"{sweep.model.name} on {device.name} ({device.why}), weights {config.weights}, seed {config.seed}"
        show_tables(rows, heading, device.name)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return launch(run, "config", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())

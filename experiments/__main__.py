"""Compile, validate, measure, record and report: `python -m experiments --help`."""

import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from common.cli import launch
from common.config import resolve
from experiments.progress import progress

STEPS = 4  # of each stack, shown in the progress


def run(cfg: DictConfig) -> int:
    """Run every stack of the configuration; 0 if all passed, else 1. Raises LabError for a mistake in it."""
    config = resolve(cfg)
    from experiments.run import Case, compile_stack, inspect_stack, measure_stack, prepare, record, validate_stack
    from experiments.table import show_json, show_tables

    rows = []
    with progress(1 + STEPS * len(config.stacks)) as show:
        lab = prepare(config, show)
        for stack in config.stacks:
            compiled = compile_stack(lab, Case(stack))
            inspected = inspect_stack(lab, compiled)
            validated = validate_stack(lab, inspected)
            measured = measure_stack(lab, validated)
            rows.append(record(lab, measured))
    if config.json:
        show_json(rows)
    else:
        heading = f"{lab.model.name} on {config.device.name} ({config.device.why}), weights {config.weights}"
        show_tables(rows, f"{heading}, seed {config.seed}", config.device.name)
    return int(any(row.verdict != "PASSED" for row in rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return launch(run, "config", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())

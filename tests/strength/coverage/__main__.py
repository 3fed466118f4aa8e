"""Coverage of the CUDA text by a validation: `python -m tests.strength.coverage --help`."""

from dataclasses import replace
from functools import partial

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import refuse_runs_keys, resolve
from common.errors import LabError
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.tables.commands import closing_lines
from experiments.tables.progress import progress
from experiments.tables.result_table import print_result, record_result
from tests.strength.coverage.execution import executed, others
from tests.strength.coverage.holes import table


def run(cfg: DictConfig) -> int:
    """Validate, record the table and print it. Raises LabError.

    Returns 0 if every stack passed, else 1; with all trials also 1 for a hole without a reason.
    """
    refuse_runs_keys(cfg, "a coverage run")
    config = resolve(cfg)
    if not config.ptx:
        raise LabError(f"coverage is counted on the PTX device, not on {config.device.name}", "leave out device=")
    every_trial = config.validation.trials == "all"
    whole = every_trial and {stack.name for stack in config.stacks} >= set(read_catalog().variants)
    more = others(config.model, config.threads) if whole and config.model else []
    with progress(1 + len(config.stacks) + len(more)) as show:
        found, failed = executed(config, show, more)
    result = table(found)
    lines = [f"Stacks: {', '.join(name for name, _ in found)}.", *(f"not validated: {each}" for each in failed)]
    result = replace(result, notes=(*lines, *result.notes))
    about = {"seed": config.seed, "stacks": [name for name, _ in found], "validation": config.validation}
    kept = record_result(result, Store(config.results), about | {"knobs": config.knobs, "threads": config.threads})
    print_result(result, config.json)
    if not config.json:
        print(closing_lines([kept], config.results))
    return int(bool(failed) or (every_trial and any(row["no reason"] for row in result.rows)))


main = partial(run_task, run, "coverage")

if __name__ == "__main__":
    raise SystemExit(main())

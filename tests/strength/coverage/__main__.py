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
from tests.strength.coverage import gcov
from tests.strength.coverage.execution import executed
from tests.strength.coverage.others import others
from tests.strength.coverage.reasons import read_reasons
from tests.strength.coverage.table import table, tracefile

TRACEFILE = "coverage.info"


def run(cfg: DictConfig) -> int:
    """Validate, record the table and print it. Raises LabError.

    Returns 0 if every stack passed, else 1; of all variants with all trials also 1 for a hole without a reason.
    """
    refuse_runs_keys(cfg, "a coverage build")
    config = resolve(cfg)
    if not config.host:
        raise LabError(f"coverage is counted on the host device, not on {config.device.name}", "leave out device=")
    gcov.tool()
    folder = config.results.parent / "coverage"
    names = {stack.name for stack in config.stacks}
    whole = names >= set(read_catalog().variants) and config.validation.trials == "all"
    more = others(config.model, config.threads) if whole and config.model else []
    with progress(2 + len(config.stacks) + len(more)) as show:
        found, failed = executed(config, folder, show, more)
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
    return int(bool(failed) or (whole and any(row["no reason"] for row in result.rows)))


main = partial(run_task, run, "coverage")

if __name__ == "__main__":
    raise SystemExit(main())

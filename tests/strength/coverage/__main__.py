"""Coverage of the CUDA text by a validation: `python -m tests.strength.coverage --help`."""

from dataclasses import replace
from functools import partial

from omegaconf import DictConfig

from common.config.cli import run_task
from common.config.resolve import refuse_runs_keys, resolve
from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.format import read_formats
from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, choose_stacks
from experiments.tables.commands import closing_lines
from experiments.tables.progress import progress
from experiments.tables.result_table import print_result, record_result
from tests.strength.coverage import gcov
from tests.strength.coverage.execution import executed
from tests.strength.coverage.reasons import read_reasons
from tests.strength.coverage.table import table, tracefile
from tests.strength.mutants.generated import SCALED

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
    whole = {stack.name for stack in config.stacks} >= set(read_catalog().variants) and config.validation.trials == "all"
    more = others(config) if whole else []
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


def others(config: RunConfig) -> list[tuple[Model, Stack]]:
    """Stacks that execute text which no stack in bf16 with knobs as they are has: of formats, and of dependent launches."""
    tries = [(names, formats, {}) for names, formats in SCALED.items()] + [(("graph",), "bf16", {"how": "pdl"})]
    return [
        (config.model.in_formats(*read_formats(formats)), stack)
        for names, formats, knobs in tries
        for stack in choose_stacks(read_catalog(), BASELINE, names, knobs, config.threads)
    ]


main = partial(run_task, run, "coverage")

if __name__ == "__main__":
    raise SystemExit(main())

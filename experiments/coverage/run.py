"""`coverage=true`: validates the stacks of a command as programs whose lines are counted, and shows the table."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from common.config.run_config import RunConfig
from common.devices.host import gcov
from common.devices.host.covered import covered
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.coverage.items import Item, items
from experiments.coverage.reasons import read_reasons
from experiments.coverage.table import table, tracefile
from experiments.run.sweep import STEPS, open_sweep
from experiments.tables.closing import closing
from experiments.tables.progress import Progress, progress
from experiments.tables.result_table import print_result, record_result

TRACEFILE = "coverage.info"


def cover(config: RunConfig) -> int:
    """Validate, record the table and print it. Raises LabError.

    Returns 0 if every stack passed, else 1; of all variants with all trials also 1 for a hole without a reason.
    """
    assert config.coverage is not None
    store = Store(config.results)
    store.check()
    gcov.tool()
    with progress(2 + STEPS * len(config.stacks)) as show:
        found, failed = executed(config, show)
    result = table(found, read_reasons())
    lines = [
        f"Stacks: {', '.join(stack.name for stack in config.stacks)}.",
        *(f"not validated: {each}" for each in failed),
    ]
    result = replace(result, notes=(*lines, *result.notes))
    file = config.coverage / TRACEFILE
    file.write_text("\n".join([*tracefile(found), ""]))
    about = {"seed": config.seed, "stacks": [stack.name for stack in config.stacks], "validation": config.validation}
    kept = record_result(result, store, about | {"knobs": config.knobs, "threads": config.threads})
    print_result(result, config.json)
    if not config.json:
        print(f"For a browser: genhtml {file}")
        print(closing([kept], config.results))
    whole = {stack.name for stack in config.stacks} >= set(
        read_catalog().variants
    ) and config.validation.trials == "all"
    return int(bool(failed) or (whole and any(row["no reason"] for row in result.rows)))


def executed(config: RunConfig, show: Progress) -> tuple[Mapping[Item, int], list[str]]:
    """Coverage by the validation of the stacks of `config`, and a line for each stack that did not pass."""
    assert config.coverage is not None
    config.coverage.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=config.coverage))
    try:
        # In a store of its own: a record of a run says what a kernel is, and these are other builds of it.
        counted = replace(
            config, coverage=folder, results=folder / "records.jsonl", archs=(), timing=None, resume=False
        )
        with open_sweep(counted, show) as sweep:
            sweep.run()
        rows = sweep.records.values()
        show.begin("read what gcov counted")
        return items(covered(folder)), [
            f"{r['variant']} is {r['status']}: {r['reason']}" for r in rows if r["status"] != "PASSED"
        ]
    finally:
        shutil.rmtree(folder)

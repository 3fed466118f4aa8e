"""The launches that a yaml and a command line ask for, and what is printed of them."""

import json
import sys
from collections.abc import Collection, Sequence
from typing import Any

from omegaconf import DictConfig

from common.cache.folder import keep_below
from common.devices.ptx.library import library
from common.devices.ptx.program import Machine
from common.display.table import Table, terminal
from common.errors import LabError
from common.json_values import to_json
from experiments.ptx.launch import launched
from experiments.ptx.launch_file import Row, rows
from experiments.tables.progress import Progress


def run(cfg: DictConfig, given: Collection[str]) -> int:
    """Launch the kernel of `cfg` and print how it ended. given: keys of the command line. Raises LabError."""
    chosen = rows(cfg, given)
    one = chosen[0].settings
    keep_below(one.cache, 1e9 * one.cache_limit_gb)
    machine = Machine(library(one.cache / "kernels", Progress(sys.stderr).note))
    if one.sweep is not None:
        return _swept(machine, chosen)
    result = launched(machine, one, one.out)
    if one.json:
        print(json.dumps(to_json(result.json())))
        return int(not result.right)
    print(f"{result.title}: {result.end}")
    for line in result.lines():
        print(line)
    if arrays := result.arrays():
        terminal(Table.of([{"array": array, **shown} for array, shown in arrays.items()], names=1))
    return int(not result.right)


def _swept(machine: Machine, rows: Sequence[Row]) -> int:
    """Launch each row and print one table; one that is refused is not right. Raises LabError if all are refused."""
    table, made, reports, refused = list[dict[str, Any]](), list[dict[str, Any]](), list[str](), list[LabError]()
    for number, row in enumerate(rows, 1):
        one = row.settings
        try:
            result = launched(machine, one, one.out and one.out / str(number))
        except LabError as error:
            refused.append(error)
            shown, whole, said = {"end": "refused"}, {"end": "refused", "report": str(error)}, [str(error)]
        else:
            shown, whole, said = result.row(), result.json(), [] if result.right else result.lines()
        table.append({**row.label, **shown})
        made.append({"row": row.label, **whole})
        values = ", ".join(f"{key} {value}" for key, value in row.label.items())
        reports += [f"row {number}, {values}: {each}" for each in said]
    if len(refused) == len(rows):
        raise refused[0]
    if rows[0].settings.json:
        for each in made:
            print(json.dumps(to_json(each)))
    else:
        for report in reports:
            print(report)
        seeds = [f"seed {row.settings.seed}" for row in rows if "seed" not in row.label]
        terminal(Table.of(table, names=1), heading="".join(seeds[:1]))
    return int(bool(reports))

"""Export of run records as one flat table: CSV or Parquet."""

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from common.errors import LabError
from experiments.tables.find import Record
from experiments.tables.row import label

if TYPE_CHECKING:
    from pandas import DataFrame


def export(records: Sequence[Record], form: Literal["csv", "parquet"], out: Path | None) -> None:
    """Write the records of kind `run` among `records` to `out`; csv without it to stdout. Raises LabError."""
    if form == "parquet" and out is None:
        raise LabError("export=parquet is no text", "say where it goes: out=FILE")
    if form == "parquet" and find_spec("pyarrow") is None:
        raise LabError("export=parquet needs pyarrow", "pip install pyarrow, or take export=csv")
    runs = [record for record in records if record.get("kind") == "run"]
    if not runs:
        raise LabError("there are no records of runs", "run something, or give another file: results=FILE")
    table = frame(runs)
    try:
        if form == "csv":
            table.to_csv(sys.stdout if out is None else out, index=False)
        else:
            table.to_parquet(out, engine="pyarrow", index=False)
    except OSError as error:
        if out is None:
            raise
        raise LabError(
            f"{out} cannot be written: {error.strerror or error}", "choose another file: out=FILE"
        ) from error
    if out is not None:
        print(f"{out}: {len(table)} records, {len(table.columns)} columns")


def frame(runs: Sequence[Record]) -> "DataFrame":
    """A row for each record; a nested field is a column `counts.qkv.grid_barriers`, `latencies.1.seconds.median`.

    Latencies are named by their position. Other lists are JSON texts. A column of values of several kinds is text.
    """
    from pandas import json_normalize

    rows = []
    for run in runs:
        latencies = {str(timed["position"]): timed for timed in run["latencies"]}
        rows.append({"id": run["id"], "label": label(run), **run, "latencies": latencies})
    table = json_normalize(rows).map(lambda value: json.dumps(value) if isinstance(value, list) else value)
    for name in table.columns:
        values = table[name].dropna()
        if values.map(type).nunique() > 1 and not values.map(lambda value: isinstance(value, int | float)).all():
            table[name] = table[name].map(str, na_action="ignore")
    return table

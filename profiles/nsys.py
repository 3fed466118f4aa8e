"""Nsight Systems: time of every kernel, by the NVTX range that launched it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from common.config.section import Section
from common.errors import LabError
from common.lazy import pandas
from profiles import tool
from profiles.tool import call, extra, literal

COLUMNS = ("range", "kernel", "launches", "us total", "us median", "us shortest", "us longest")
# A row for each launch. It is the row of RUNTIME with the kernel's correlation id; 59 is the type of a range that is
# pushed and popped, whose message is in the row or, if registered, in StringIds.
ROWS = """
SELECT s.value AS kernel, (k.end - k.start) / 1e3 AS us, COALESCE((
    SELECT COALESCE(n.text, m.value) FROM NVTX_EVENTS n LEFT JOIN StringIds m ON m.id = n.textId
    WHERE n.eventType = 59 AND n.globalTid = r.globalTid AND r.start BETWEEN n.start AND n.end
    ORDER BY n.start DESC LIMIT 1), '-') AS range
FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
LEFT JOIN (SELECT correlationId, globalTid, MIN(start) AS start FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY correlationId)
    r ON r.correlationId = k.correlationId
ORDER BY k.start
"""


def options(settings: Section) -> list[str]:
    """Options of nsys for a capture between cudaProfilerStart and Stop, without the report's name. Raises LabError."""
    settings.only({"options"})
    return ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true", *extra(settings)]


def capture(nsys: str, options: Sequence[str], target: Sequence[str], folder: Path) -> "pandas.DataFrame":
    """Run `target` under `nsys`, keep its report in `folder`, and return `kernels` of it. Raises LabError."""
    report = folder / "report.nsys-rep"
    command = [nsys, "profile", *options, f"--output={literal(report)}", *target]
    tool.capture(command, report, "use device=cuda: only CUDA runs call cudaProfilerStart and Stop")
    export = report.with_suffix(".sqlite")
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={export}", str(report)]
    call(command, folder / "export.log")
    return kernels(export)


def kernels(export: Path) -> "pandas.DataFrame":
    """One row per (NVTX range, kernel) of nsys's SQLite export; times in microseconds.

    A kernel belongs to the innermost push/pop range that was open on the thread that launched it, as ROWS says. nsys
    leaves out tables that would be empty. Raises LabError for a file that is no such export.
    """
    try:
        with sqlite3.connect(f"file:{export}?mode=ro", uri=True) as base:
            tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
            if "StringIds" not in tables:
                raise LabError(f"{export.name} is no export of nsys: no table StringIds", "run the profile again")
            if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
                raise LabError("nsys recorded no kernel", "use device=cuda, with --trace=cuda among nsys.options")
            if "NVTX_EVENTS" not in tables:
                base.execute("CREATE TEMP TABLE NVTX_EVENTS (start, end, eventType, text, globalTid, textId)")
            found = pandas.read_sql(ROWS, base)
    except (sqlite3.Error, pandas.errors.DatabaseError) as error:
        raise LabError(
            f"{export.name} cannot be read: {error}", "run the profile again, or with another version of nsys"
        ) from error
    table = found.groupby(["range", "kernel"], sort=False)["us"].agg(["count", "sum", "median", "min", "max"])
    table = table.reset_index()
    table.columns = list(COLUMNS)
    return table

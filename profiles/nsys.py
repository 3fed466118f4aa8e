"""Nsight Systems: time of every kernel, by the NVTX range that launched it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.config.section import Section
from common.errors import LabError
from profiles import tool
from profiles.tool import call, extra, literal

if TYPE_CHECKING:
    from pandas import DataFrame

PUSH_POP = 59  # eventType of NVTX_EVENTS for a range that is pushed and popped
COLUMNS = ("range", "kernel", "launches", "us total", "us median", "us shortest", "us longest")


def options(settings: Section) -> list[str]:
    """Options of nsys for one capture between cudaProfilerStart and Stop, without the report's name. Raises LabError.

    `--capture-range=nvtx` is not used: it matches only registered strings, which the lab's ranges do not have.
    """
    settings.only({"minimum", "options"})
    return ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true", *extra(settings)]


def capture(nsys: str, options: Sequence[str], target: Sequence[str], folder: Path) -> "DataFrame":
    """Run `target` under `nsys`, keep its report in `folder`, and return `kernels` of it. Raises LabError."""
    report = folder / "report.nsys-rep"
    command = [nsys, "profile", *options, f"--output={literal(report)}", *target]
    tool.capture(command, report, "use device=cuda: only CUDA runs call cudaProfilerStart and Stop")
    export = report.with_suffix(".sqlite")
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={export}", str(report)]
    call(command, folder / "export.log")
    return kernels(export)


def kernels(export: Path) -> "DataFrame":
    """One row per (NVTX range, kernel) of nsys's SQLite export; times in microseconds.

    A kernel belongs to the innermost push/pop range that was open on the thread that launched it: the launch is the row
    of CUPTI_ACTIVITY_KIND_RUNTIME with the kernel's correlation id. nsys leaves out tables that would be empty. Raises
    LabError for a file that is no such export.
    """
    import pandas

    try:
        with sqlite3.connect(f"file:{export}?mode=ro", uri=True) as base:
            tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
            if "StringIds" not in tables:
                raise LabError(f"{export.name} is no export of nsys: no table StringIds", "run the profile again")
            if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
                raise LabError("nsys recorded no kernel", "use device=cuda, with --trace=cuda among nsys.options")
            found = pandas.read_sql(
                """SELECT k.start, k.end, k.correlationId, s.value AS kernel FROM CUPTI_ACTIVITY_KIND_KERNEL k
                   JOIN StringIds s ON s.id = k.shortName ORDER BY k.start""",
                base,
            )
            calls = pandas.read_sql(
                "SELECT correlationId, start AS called, globalTid AS thread FROM CUPTI_ACTIVITY_KIND_RUNTIME", base
            )
            ranges = _ranges(base, tables)
    except (sqlite3.Error, pandas.errors.DatabaseError) as error:
        raise LabError(
            f"{export.name} cannot be read: {error}", "run the profile again, or with another version of nsys"
        ) from error

    found = found.merge(calls.drop_duplicates("correlationId"), on="correlationId", how="left")
    found["range"] = [_innermost(ranges, launch.called, launch.thread) for launch in found.itertuples()]
    found["us"] = (found["end"] - found["start"]) / 1e3
    groups = found.groupby(["range", "kernel"], sort=False)["us"]
    table = groups.agg(["count", "sum", "median", "min", "max"]).reset_index()
    table.columns = list(COLUMNS)
    return table


def _ranges(base: sqlite3.Connection, tables: set[str]) -> "DataFrame":
    """Push/pop ranges: start, end, thread, message. The message is in the row or, if registered, in StringIds."""
    import pandas

    if "NVTX_EVENTS" not in tables:
        return pandas.DataFrame({"start": [], "end": [], "thread": [], "message": []})
    return pandas.read_sql(
        f"""SELECT n.start, n.end, n.globalTid AS thread, COALESCE(n.text, s.value) AS message FROM NVTX_EVENTS n
            LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType = {PUSH_POP} AND n.end IS NOT NULL""",
        base,
    )


def _innermost(ranges: "DataFrame", called: float, thread: float) -> str:
    around = ranges[(ranges["thread"] == thread) & (ranges["start"] <= called) & (called <= ranges["end"])]
    return "-" if around.empty else str(around.loc[around["start"].idxmax(), "message"])

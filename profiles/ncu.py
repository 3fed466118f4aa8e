"""Nsight Compute: the hardware's counters of one launch of one kernel."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import LabError
from common.section import Section
from profiles.tool import call, find

if TYPE_CHECKING:
    from pandas import DataFrame

KEYS = {"minimum", "kernel", "skip", "clock_control", "sections", "metrics"}
TAKEN = {"Section Name": "section", "Metric Name": "metric", "Metric Unit": "unit", "Metric Value": "value"}
NAME = "Kernel Name"
CLOCKS = ("none", "base")


def capture(settings: Section, by_stage: bool, target: Sequence[str], root: Path, folder: Path) -> "DataFrame":
    """Run `target` under ncu, keep its report in `folder`, and return `metrics` of it. Raises LabError.

    by_stage: the stack has a kernel per stage. root: where the file names of #line directives start.
    """
    command = [*options(settings, by_stage), "--source-folders", str(root)]
    ncu = find("ncu", settings.text("minimum"))
    report = folder / "report.ncu-rep"
    call([ncu, *command, "--export", str(report), "--force-overwrite", *target], folder / "ncu.log")
    shown = ["--csv", "--page", "details", "--print-details", "all"]
    return metrics(call([ncu, "--import", str(report), *shown], folder / "import.log"))


def options(settings: Section, by_stage: bool) -> list[str]:
    """ncu's options for one launch of the chosen kernel between cudaProfilerStart and Stop."""
    settings.only(KEYS)
    kernel = settings.text("kernel") if settings.given("kernel") else "stage_lm_head" if by_stage else "decode"
    clocks = settings.text("clock_control")
    if clocks not in CLOCKS:
        raise LabError(f"ncu.clock_control={clocks}", f"choose from {', '.join(CLOCKS)}")
    chosen = ["--profile-from-start", "off", "--kernel-name", kernel]
    chosen += ["--launch-skip", str(settings.whole("skip", low=0)), "--launch-count", "1"]
    chosen += ["--clock-control", clocks, "--import-source", "yes"]
    for section in settings.texts("sections"):
        chosen += ["--section", section]
    if wanted := settings.texts("metrics"):
        chosen += ["--metrics", ",".join(wanted)]
    return chosen


def metrics(text: str) -> "DataFrame":
    """The rows of ncu's CSV (page `details`): kernel, section, metric, unit, value.

    What ncu says before the header (==PROF== ...) is skipped, rows of its rules, which have no metric, too. Values are
    numbers where they read as one; the thousands separators are a comma. Raises LabError when there is no table.
    """
    import pandas

    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        first = next((line for line in lines if line.strip()), "nothing")
        raise LabError(f"ncu printed no table but: {first}", "run the profile again; page details is what is read")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if missing := {NAME, *TAKEN} - set(rows[0] if rows else ()):
        raise LabError(f"ncu's table lacks {', '.join(sorted(missing))}", "use a version of ncu with these columns")
    found = [
        {"kernel": row[NAME], **{new: row[old] for old, new in TAKEN.items()}} for row in rows if row["Metric Name"]
    ]
    table = pandas.DataFrame(found, columns=["kernel", *TAKEN.values()])
    return table.assign(value=table["value"].map(_value))


def _value(text: str) -> float | str:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text

"""Nsight Compute: hardware counters of one launch of one kernel."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.config.section import Natural, Section
from common.errors import LabError
from common.lazy import pandas
from profiles import tool
from profiles.tool import call, extra, literal

COLUMNS = {
    "Kernel Name": "kernel",
    "Section Name": "section",
    "Metric Name": "metric",
    "Metric Unit": "unit",
    "Metric Value": "value",
}


@dataclass(frozen=True)
class Settings:
    """The section `ncu` of conf/profiles.yaml, which explains the keys."""

    kernel: str
    skip: Natural
    clock_control: Literal["none", "base"]
    cache_control: Literal["none", "all"]
    sections: tuple[str, ...]
    metrics: tuple[str, ...]
    options: tuple[str, ...]


def capture(ncu: str, options: Sequence[str], target: Sequence[str], folder: Path) -> "pandas.DataFrame":
    """Run `target` under `ncu`, keep its report in `folder`, and return `metrics` of it. Raises LabError."""
    report = folder / "report.ncu-rep"
    command = [ncu, *options, "--export", literal(report), "--force-overwrite", *target]
    tool.capture(command, report, "use device=cuda, and check ncu.kernel and ncu.skip")
    shown = ["--csv", "--page", "details", "--print-details", "all"]
    return metrics(call([ncu, "--import", str(report), *shown], folder / "import.log"))


def options(settings: Section) -> list[str]:
    """Options of ncu for one launch of the chosen kernel between cudaProfilerStart and Stop. Raises LabError."""
    own = settings.read(Settings)
    chosen = ["--profile-from-start", "off"]
    chosen += ["--kernel-name", own.kernel]
    chosen += ["--launch-skip", str(own.skip), "--launch-count", "1"]
    chosen += ["--clock-control", own.clock_control, "--cache-control", own.cache_control, "--import-source", "yes"]
    for section in own.sections:
        chosen += ["--section", section]
    if own.metrics:
        chosen += ["--metrics", ",".join(own.metrics)]
    return [*chosen, *extra(settings)]


def metrics(text: str) -> "pandas.DataFrame":
    """The rows of ncu's CSV (page `details`): kernel, section, metric, unit, value.

    The lines before the header (==PROF== ...) are skipped, as are the rows of rules, which have no metric. Numeric
    values become numbers; their thousands separator is a comma. Raises LabError when there is no table.
    """
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        first = next((line for line in lines if line.strip()), "nothing")
        raise LabError(f"ncu printed no table but: {first}", "run the profile again; the page `details` is needed")
    table = pandas.read_csv(io.StringIO("\n".join(lines[start:])), dtype=str, keep_default_na=False)
    if missing := COLUMNS.keys() - set(table.columns):
        raise LabError(f"ncu's table lacks {', '.join(sorted(missing))}", "use a version of ncu with these columns")
    table = table.loc[table["Metric Name"] != "", [*COLUMNS]].rename(columns=COLUMNS).reset_index(drop=True)
    numbers = pandas.to_numeric(table["value"].str.replace(",", ""), errors="coerce")
    return table.assign(value=numbers.astype(object).where(numbers.notna(), table["value"]))

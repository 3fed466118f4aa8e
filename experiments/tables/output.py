"""Output of a command: the tables of its jobs, and where their records are."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.config.run_config import RunConfig
from experiments.tables.commands import closing_lines
from experiments.tables.run_row import Row
from experiments.tables.run_table import show_tables


@dataclass(frozen=True)
class Job:
    """The rows of one job, and its settings. model: the name of its shape."""

    rows: Sequence[Row]
    model: str
    config: RunConfig

    @property
    def heading(self) -> tuple[str, str, str]:
        config = self.config
        where = f"{self.model} on {config.device.name} ({config.device.why})"
        return where, f"weights {config.weights}", f"seed {config.seed}"


def show_jobs(jobs: Sequence[Job]) -> int:
    """Print one table of the rows of all jobs, with a heading of what they share, and the place of their records; 0."""
    jobs = [job for job in jobs if job.rows]
    if not jobs:
        return 0
    shared = [parts[0] for parts in zip(*(job.heading for job in jobs), strict=True) if len(set(parts)) == 1]
    device = next((name for job in jobs if (name := job.config.device.name) != "cuda"), "cuda")
    show_tables([row for job in jobs for row in job.rows], ", ".join(shared), device)
    for path in sorted({job.config.results for job in jobs}):
        rows = (row for job in jobs if job.config.results == path for row in job.rows)
        print(closing_lines([row.record for row in rows if row.record], path))
    return 0

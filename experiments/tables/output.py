"""Output of a command: the tables of its jobs, and where their records are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from common.config.run_config import RunConfig
from experiments.tables.commands import closing_lines
from experiments.tables.run_row import Row


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


@dataclass
class Output:
    """The jobs of one command; `started` counts this process's.

    A launcher may run each job in a process of its own, with a copy of this: such a job prints its own rows.
    """

    started: int = 0
    waiting: list[Job] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def add(self, job: Job, at_once: bool) -> None:
        """Keep the rows of a job; print them now, or with the other jobs' rows. JSON lines never wait."""
        from experiments.tables.run_table import show_json

        if job.config.json:
            show_json(job.rows)
        else:
            self.waiting.append(job)
            if at_once or os.getpid() != self.process:
                self.close()

    def close(self) -> None:
        """Print the rest: one table of all rows, and the place of their records."""
        jobs, self.waiting = [job for job in self.waiting if job.rows], []
        if not jobs:
            return
        from experiments.tables.run_table import show_tables

        shared = [parts[0] for parts in zip(*(job.heading for job in jobs), strict=True) if len(set(parts)) == 1]
        device = next((name for job in jobs if (name := job.config.device.name) != "cuda"), "cuda")
        show_tables([row for job in jobs for row in job.rows], ", ".join(shared), device)
        for path in sorted({job.config.results for job in jobs}):
            rows = (row for job in jobs if job.config.results == path for row in job.rows)
            print(closing_lines([row.record for row in rows if row.record], path))

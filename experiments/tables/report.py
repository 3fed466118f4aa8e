"""Report of one command: the rows of a run, or of all jobs of a multirun, printed once at the end."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from common.config.run_config import RunConfig

if TYPE_CHECKING:
    from experiments.tables.row import Row


@dataclass(frozen=True)
class Found:
    """The rows of one job, and what it ran with. model: the name of its shape."""

    rows: "Sequence[Row]"
    model: str
    config: RunConfig

    @property
    def heading(self) -> tuple[str, str, str]:
        config = self.config
        where = f"{self.model} on {config.device.name} ({config.device.why})"
        return where, f"weights {config.weights}", f"seed {config.seed}"


@dataclass
class Report:
    """The jobs of one command. `jobs` counts those that ran in this process.

    A launcher may run each job in a process of its own, with a copy of this: such a job prints what it found itself.
    """

    jobs: int = 0
    found: list[Found] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def add(self, found: Found, at_once: bool) -> None:
        """Keep what a job found; print it now, or with that of the other jobs. JSON lines never wait."""
        from experiments.tables.run_table import show_json

        if found.config.json:
            show_json(found.rows)
        else:
            self.found.append(found)
            if at_once or os.getpid() != self.process:
                self.close()

    def close(self) -> None:
        """Print what has not been printed yet: one table of all rows, and where they are kept."""
        found, self.found = [one for one in self.found if one.rows], []
        if not found:
            return
        from experiments.tables.closing import closing
        from experiments.tables.run_table import show_tables

        rows = [row for one in found for row in one.rows]
        shared = [parts[0] for parts in zip(*(one.heading for one in found), strict=True) if len(set(parts)) == 1]
        names = {one.config.device.name for one in found}
        paths = sorted({one.config.results for one in found})
        show_tables(rows, ", ".join(shared), "host" if "host" in names else "cuda")
        for path in paths:
            shown = [row for one in found if one.config.results == path for row in one.rows]
            print(closing([row.record for row in shown if row.record], path))

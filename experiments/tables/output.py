"""Output of a command: the tables of its jobs, where the records are, and the commands that go on with them."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from common import ROOT
from common.config.run_config import RunConfig

if TYPE_CHECKING:
    from experiments.tables.row import Row

DEFAULT = Path("experiments") / "runs" / "records.jsonl"  # below the root: `results` of conf/config.yaml
LISTED = 3  # ids; of more, the first and the last


@dataclass(frozen=True)
class Job:
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
class Output:
    """The jobs of one command; `started` counts those of this process.

    A launcher may run each job in a process of its own, with a copy of this: such a job prints its own rows.
    """

    started: int = 0
    waiting: list[Job] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def add(self, job: Job, at_once: bool) -> None:
        """Keep the rows of a job; print them now, or with those of the other jobs. JSON lines never wait."""
        from experiments.tables.run_table import show_json

        if job.config.json:
            show_json(job.rows)
        else:
            self.waiting.append(job)
            if at_once or os.getpid() != self.process:
                self.close()

    def close(self) -> None:
        """Print what has not been printed yet: one table of all rows, and where they are kept."""
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


def closing_lines(ids: Sequence[str], results: Path) -> str:
    """Where the records `ids` are, and the next commands: lines to print after the tables."""
    return "\n".join(_closing_lines(ids, results))


def _closing_lines(ids: Sequence[str], results: Path) -> Iterator[str]:
    listed = ", ".join(ids) if len(ids) <= LISTED else f"{len(ids)} records, {ids[0]} to {ids[-1]}"
    yield f"Kept in {relative(results)}: {listed}"
    yield f"  look at one    {show_command(ids[-1], results)}"
    if len(ids) > 1:
        yield f"  compare two    {show_command(f'compare={ids[0]},{ids[-1]}', results)}"
    yield f"  make a report  python -m experiments.report records=[{relative(results)}]"


def show_command(what: str, results: Path) -> str:
    """The command that shows `what`, such as an id or `last`, from the store `results`."""
    words = [what] if results.absolute() == ROOT / DEFAULT else [what, f"results={relative(results)}"]
    return f"python -m experiments.show {shlex.join(words)}"


def relative(path: Path) -> str:
    """`path` from the working folder, if it is below it; else absolute."""
    path = Path(os.path.abspath(path))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

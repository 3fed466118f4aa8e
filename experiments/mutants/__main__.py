"""Does the validator tell wrong kernels from right ones: `python -m experiments.mutants --help`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

from common.cli import launch
from common.config import RunConfig, resolve, split
from common.errors import LabError
from common.records import Store
from experiments.mutants.judgement import judge_all, summary
from experiments.mutants.mutation import read_mutants
from experiments.outcome import keep, tell
from experiments.progress import progress


@dataclass(frozen=True)
class Request:
    """Which mutants: those whose class or name has `only` in it; `processes` at a time."""

    only: str
    processes: int


def request(cfg: DictConfig) -> tuple[RunConfig, Request]:
    """Split the configuration into the run and the request. Raises LabError for a bad value in either."""
    asked, rest = split(cfg, ("only", "processes"))
    wanted = Request(asked.text("only") if asked.given("only") else "", asked.whole("processes", low=1))
    return resolve(rest), wanted


def run(cfg: DictConfig) -> int:
    """Judge the mutants, keep the table as a record and print it; 0 when every one did what its yaml says, else 1."""
    config, wanted = request(cfg)
    mutants = [m for m in read_mutants() if wanted.only in f"{m.kind}: {m.name}"]
    if not mutants:
        raise LabError(f"no mutant has {wanted.only!r} in its class or name", "see tests/mutants, or leave out only=")
    store = Store(config.results)
    store.check()
    with progress(len(mutants)) as bar:
        found = judge_all(mutants, config.seed, config.cache, wanted.processes, lambda one: bar.begin(one.title))
    outcome = summary(found)
    about = {"seed": config.seed, "details": [one.as_record() for one in found]}
    keep(outcome, store, about)
    tell(outcome, config.json)
    return int(any(not one.as_expected for one in found))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return launch(run, "mutants", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())

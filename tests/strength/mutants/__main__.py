"""Mutation test of the validator: `python -m tests.strength.mutants --help`."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from common.cache.folder import keep_below
from common.config.cli import run_task
from common.config.resolve import seed_of
from common.config.section import Section
from common.errors import LabError
from common.record.store import Store
from experiments.tables.output import closing_lines
from experiments.tables.progress import progress
from experiments.tables.result_table import ResultTable, print_result, record_result
from tests.strength.mutants import score
from tests.strength.mutants.generated import drawn, generate
from tests.strength.mutants.mutation import Mutant, read_mutants, sample
from tests.strength.mutants.runner import check_all, judge_all, summary


@dataclass(frozen=True)
class Request:
    """Mutants whose class or name contains `only`, or a sample of them; the rest as in conf/mutants.yaml."""

    operators: bool
    only: str
    sample: int | None
    processes: int
    seed: int
    results: Path
    cache: Path
    json: bool


def request(cfg: DictConfig) -> Request:
    """The request of a configuration; from here on the cache is kept below its limit. Raises LabError."""
    section = Section.from_config(cfg)
    section.only({*(field.name for field in fields(Request)), "cache_limit_gb", "debug"})
    keep_below(section.location("cache"), 1e9 * section.number("cache_limit_gb"))
    return Request(
        operators=section.flag("operators"),
        only=section.text("only") if section.given("only") else "",
        sample=section.whole("sample", low=1) if section.given("sample") else None,
        processes=section.whole("processes", low=1),
        seed=seed_of(section),
        results=section.location("results"),
        cache=section.location("cache"),
        json=section.flag("json"),
    )


def run(cfg: DictConfig) -> int:
    """Check the mutants, append the table to the store and print it. Returns 0 when all end as expected, else 1."""
    wanted = request(cfg)
    every = tuple(generate()) if wanted.operators else read_mutants()
    mutants = [m for m in every if wanted.only in f"{m.kind}: {m.name}"]
    if not mutants:
        remedy = "see tests/strength/mutants, or leave out only="
        raise LabError(f"no mutant has {wanted.only!r} in its class or name", remedy)
    of = len(mutants)
    if wanted.sample:
        mutants = (drawn if wanted.operators else sample)(mutants, wanted.sample, wanted.seed)
    store = Store(wanted.results)
    store.check()
    with progress(len(mutants)) as bar:
        check = _by_operator if wanted.operators else _by_hand
        result, details, well = check(mutants, of, wanted, lambda title: bar.begin(title))
    kept = record_result(result, store, {"seed": wanted.seed, "details": details})
    print_result(result, wanted.json)
    if not wanted.json:
        print(closing_lines([kept], wanted.results))
    return int(not well)


Checked = tuple[ResultTable, list[dict[str, Any]], bool]  # the table, its details, and whether all is as expected


def _by_hand(mutants: Sequence[Mutant], of: int, wanted: Request, begin: Callable[[str], None]) -> Checked:
    found = check_all(mutants, wanted.seed, wanted.cache, wanted.processes, lambda one: begin(one.title))
    return summary(found), [one.as_record() for one in found], all(one.as_expected for one in found)


def _by_operator(mutants: Sequence[Mutant], of: int, wanted: Request, begin: Callable[[str], None]) -> Checked:
    found = judge_all(mutants, wanted.seed, wanted.cache, wanted.processes, lambda one: begin(one.title))
    return score.summary(found, of), [one.as_record() for one in found], score.Score(found).reached


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return run_task(run, "mutants", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())

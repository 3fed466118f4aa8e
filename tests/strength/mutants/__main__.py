"""Mutation test of the validator: `python -m tests.strength.mutants --help`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_type_hints

from omegaconf import DictConfig

from common.cache.folder import keep_below
from common.config.cli import run_task
from common.config.resolve import seed_of
from common.config.run_config import Seed
from common.config.section import Section
from common.errors import LabError
from common.record.provenance import code_sha
from common.record.store import Store
from experiments.tables.commands import closing_lines
from experiments.tables.progress import progress
from experiments.tables.result_table import print_result, record_result
from tests.strength.kept import Kept, digest, of_code
from tests.strength.mutants.generated import drawn, generate
from tests.strength.mutants.judge import SURVIVED, Judged, judge_each
from tests.strength.mutants.mutation import Mutant, read_mutants, sample
from tests.strength.mutants.score import Score, summary


@dataclass(frozen=True)
class MutantOptions:
    """The keys of conf/mutants.yaml, which explains them."""

    operators: bool
    only: str | None
    sample: int | None
    processes: int
    seed: Seed
    results: Path
    cache: Path
    json: bool


def run(cfg: DictConfig) -> int:
    """Check the mutants, append the table to the store and print it. Returns 0 when all end as expected, else 1."""
    section = Section.from_config(cfg)
    section.only({*get_type_hints(MutantOptions), "cache_limit_gb", "debug"})
    wanted = MutantOptions(**section.fields(MutantOptions, but=["seed"]), seed=seed_of(section))
    keep_below(wanted.cache, 1e9 * section.number("cache_limit_gb"))
    every = tuple(generate()) if wanted.operators else read_mutants()
    mutants = [m for m in every if (wanted.only or "") in f"{m.kind}: {m.name}"]
    if not mutants:
        remedy = "see tests/strength/mutants, or leave out only="
        raise LabError(f"no mutant has {wanted.only!r} in its class or name", remedy)
    of = len(mutants)
    if wanted.sample:
        mutants = (drawn if wanted.operators else sample)(mutants, wanted.sample, wanted.seed)
    store = Store(wanted.results)
    store.check()
    with progress(len(mutants)) as bar:
        found = judged(mutants, wanted, bar.begin)
    total, result = Score(found), summary(found, of)
    kept = record_result(result, store, {"seed": wanted.seed, "details": [one.as_record() for one in found]})
    print_result(result, wanted.json)
    if not wanted.json:
        print(closing_lines([kept], wanted.results))
    return int(not (total.reached if wanted.operators and wanted.only is None else not total.survivors))


def judged(mutants: Sequence[Mutant], wanted: MutantOptions, begin: Callable[[str], None]) -> list[Judged]:
    """The fate of each. What a run with this seed has judged before is not tried again, nor what has a reason."""
    kept, code = Kept(wanted.cache / "mutants.jsonl"), [code_sha(), of_code("tests/strength"), str(wanted.seed)]

    def key(mutant: Mutant) -> str:
        return digest([*code, repr(mutant)])

    known = {key(one): [SURVIVED] if one.expect == "equivalent" else kept.get(key(one)) for one in mutants}
    left = [mutant for mutant in mutants if not known[key(mutant)]]
    for one in judge_each(left, wanted.seed, wanted.cache, wanted.processes):
        begin(one.title)
        known[key(one.mutant)] = [one.fate, one.how]
        kept.put(key(one.mutant), known[key(one.mutant)])
    return [Judged(mutant, *known[key(mutant)]) for mutant in mutants]


main = partial(run_task, run, "mutants")

if __name__ == "__main__":
    raise SystemExit(main())

"""Does the validator tell wrong kernels from right ones: `python -m experiments.mutants --help`."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from common.cli import launch
from common.config import RunConfig, resolve
from common.errors import LabError
from common.records import Store
from common.section import Section
from experiments.mutation import Mutant, read_mutants
from experiments.outcome import COUNTED, Outcome, keep, rows, show
from experiments.progress import progress

if TYPE_CHECKING:
    from experiments.trial import Found

QUESTION = "how many faults in kernels does the validator find, and how many would weaker checks"
NOTES = (
    "killed: found by the validator on some grid, or by ThreadSanitizer where only that can; equivalent: the kernel is "
    "still right, and passes. The last two columns say how many of the faults a check of the final token would find, "
    "and torch.testing.assert_close on the final logits, after three steps from a random history.",
)


@dataclass(frozen=True)
class Request:
    """Which mutants: those whose class or name has `only` in it; `processes` at a time."""

    only: str
    processes: int


def request(cfg: DictConfig) -> tuple[RunConfig, Request]:
    """Split the configuration into the run and the request. Raises LabError for a bad value in either."""
    tree = OmegaConf.to_container(cfg, resolve=True)
    asked = Section({key: tree.pop(key) for key in ("only", "processes")})
    wanted = Request(asked.text("only") if asked.given("only") else "", asked.whole("processes", low=1))
    return resolve(OmegaConf.create(tree)), wanted


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
    if config.json:
        import json

        for row in rows(outcome.table):
            print(json.dumps(row))
    else:
        show(outcome)
    return int(any(not one.as_expected for one in found))


def summary(found: "Sequence[Found]") -> Outcome:
    """A row for each class, and their sum; notes name every survivor and every equivalent mutant with the reason."""
    import pandas as pd

    def row(name: str, ones: "Sequence[Found]") -> dict[str, str | int]:
        faults = [one for one in ones if one.mutant.expect != "equivalent"]
        return {
            "class": name,
            "mutants": len(ones),
            "killed": sum(one.killed for one in faults),
            "survived": sum(not one.killed for one in faults),
            "equivalent": len(ones) - len(faults),
            "final token": sum(one.token for one in faults),
            "final logits": sum(one.logits for one in faults),
        }

    kinds = list(dict.fromkeys(one.mutant.kind for one in found))
    table = [row(kind, [one for one in found if one.mutant.kind == kind]) for kind in kinds]
    notes = list(NOTES)
    for head, kept in (
        ("survived", [one for one in found if not one.killed and one.mutant.expect != "equivalent"]),
        ("equivalent", [one for one in found if one.mutant.expect == "equivalent"]),
        ("not equivalent after all", [one for one in found if one.mutant.expect == "equivalent" and one.killed]),
    ):
        notes += [f"{head}: {one.title}: {one.how if 'after' in head else one.mutant.reason}" for one in kept]
    return Outcome("mutants", QUESTION, pd.DataFrame([*table, row("all", found)]), COUNTED, notes)


def judge_all(
    mutants: Sequence[Mutant], seed: int, cache: Path, processes: int, done: "Callable[[Found], None]" = lambda _: None
) -> "list[Found]":
    """Judge each mutant in a process of its own, `processes` at a time; `done` hears of each as it ends."""
    from experiments.trial import Found

    context = get_context("forkserver")
    context.set_forkserver_preload(["experiments.trial"])

    def one(mutant: Mutant) -> "Found":
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, mutant, seed, cache))
        process.start()
        theirs.close()
        try:
            found = ours.recv()
        except EOFError:
            process.join()
            if process.exitcode >= 0:  # not by a signal: a fault of the lab, told on stderr
                raise
            return Found(mutant, f"crashed: its process ended with {process.exitcode}", 1, True, True)
        process.join()
        if isinstance(found, LabError):
            raise LabError(f"mutant {mutant.name}: {found.cause}", found.remedy)
        return found

    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(one, mutant) for mutant in mutants]
        try:
            for future in as_completed(futures):
                done(future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _child(answer: Connection, mutant: Mutant, seed: int, cache: Path) -> None:
    from experiments.trial import judge

    try:
        answer.send(judge(mutant, seed, cache))
    except LabError as error:
        answer.send(LabError(error.cause, error.remedy))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    return launch(run, "mutants", sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())

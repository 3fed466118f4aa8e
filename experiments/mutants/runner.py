"""Runner of the mutation test: every mutant in its own process, and the table of results."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import LabError
from experiments.mutants.mutation import Mutant
from experiments.show.result_table import COUNTED, ResultTable

if TYPE_CHECKING:
    from experiments.mutants.checks import MutantResult

QUESTION = "how many faults in kernels the validator finds, and how many weaker checks would find"
NOTES = (
    "killed: found by the validator on some grid, or by ThreadSanitizer if only it can; equivalent: the kernel is "
    "still correct, and passes. The last two columns count the faults that a check of the final token would find, "
    "and torch.testing.assert_close on the final logits, after three steps from a random history.",
)


def summary(found: "Sequence[MutantResult]") -> ResultTable:
    """A row for each class, and their sum. Notes name every survivor and equivalent mutant with the reason."""
    import pandas as pd

    def row(name: str, ones: "Sequence[MutantResult]") -> dict[str, str | int]:
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
    equivalent = [one for one in found if one.mutant.expect == "equivalent"]
    survived = [one for one in found if not one.killed and one not in equivalent]
    notes += [f"survived: {one.title}: {one.mutant.reason}" for one in survived]
    notes += [f"equivalent: {one.title}: {one.mutant.reason}" for one in equivalent]
    notes += [f"killed, but listed as equivalent: {one.title}: {one.how}" for one in equivalent if one.killed]
    return ResultTable("mutants", QUESTION, pd.DataFrame([*table, row("all", found)]), COUNTED, notes)


def check_all(
    mutants: Sequence[Mutant],
    seed: int,
    cache: Path,
    processes: int,
    done: "Callable[[MutantResult], None]" = lambda _: None,
) -> "list[MutantResult]":
    """Check each mutant in its own process, `processes` at a time; `done` is called with each result as it ends."""
    from experiments.mutants.checks import MutantResult

    context = get_context("forkserver")
    context.set_forkserver_preload(["experiments.mutants.checks"])

    def one(mutant: Mutant) -> "MutantResult":
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, mutant, seed, cache))
        process.start()
        theirs.close()
        try:
            found = ours.recv()
        except EOFError:
            process.join()
            code = process.exitcode
            if code is None or code >= 0:  # not by a signal: an error in the lab, with its traceback on stderr
                raise
            return MutantResult(mutant, f"crashed: its process ended with {code}", 1, True, True)
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
    from experiments.mutants.checks import check_mutant

    try:
        answer.send(check_mutant(mutant, seed, cache))
    except LabError as error:
        answer.send(LabError(error.cause, error.remedy))

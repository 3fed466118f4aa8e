"""Every mutant judged in a process of its own, and the table of what became of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import LabError
from experiments.mutants.mutation import Mutant
from experiments.outcome import COUNTED, Outcome

if TYPE_CHECKING:
    from experiments.mutants.trial import Found

QUESTION = "how many faults in kernels does the validator find, and how many would weaker checks"
NOTES = (
    "killed: found by the validator on some grid, or by ThreadSanitizer where only that can; equivalent: the kernel is "
    "still right, and passes. The last two columns say how many of the faults a check of the final token would find, "
    "and torch.testing.assert_close on the final logits, after three steps from a random history.",
)


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
    from experiments.mutants.trial import Found

    context = get_context("forkserver")
    context.set_forkserver_preload(["experiments.mutants.trial"])

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
    from experiments.mutants.trial import judge

    try:
        answer.send(judge(mutant, seed, cache))
    except LabError as error:
        answer.send(LabError(error.cause, error.remedy))

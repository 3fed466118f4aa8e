"""A process for each mutant: a kernel that ends its process, or never ends, costs only its own result."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from common.errors import LabError
from tests.strength.mutants.mutation import Mutant

T = TypeVar("T")
Check = Callable[[Mutant, int, Path], T]
LONGEST_S = 900.0  # of one mutant, which takes seconds: a kernel that overwrites the runtime's memory may never end


def check_each(
    check: Check[T],
    lost: Callable[[Mutant, str], T],
    mutants: Sequence[Mutant],
    seed: int,
    cache: Path,
    processes: int,
    done: Callable[[T], None] = lambda _: None,
) -> list[T]:
    """`check(mutant, seed, cache)` for each mutant in its own process, `processes` at a time.

    lost: the result of a mutant whose process ends by a signal or not at all, which it is told. done: is called with
    each result as it ends. Raises LabError, and EOFError where the check itself fails, with its traceback on stderr.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([check.__module__])

    def one(mutant: Mutant) -> T:
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, check, mutant, seed, cache))
        process.start()
        theirs.close()
        try:
            if not ours.poll(LONGEST_S):
                process.kill()
                process.join()
                return lost(mutant, f"hung: its process did not end in {LONGEST_S:g} s")
            found = ours.recv()
        except EOFError:
            process.join()
            code = process.exitcode
            if code is None or code >= 0:
                raise
            return lost(mutant, f"crashed: its process ended with {code}")
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


def _child(answer: Connection, check: Check[Any], mutant: Mutant, seed: int, cache: Path) -> None:
    try:
        answer.send(check(mutant, seed, cache))
    except LabError as error:
        answer.send(LabError(error.cause, error.remedy))

"""A process for each mutant: a kernel that ends its process, or never ends, costs only its own result."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from common.errors import Crashed, Hung, LabError
from experiments.processes import apart
from tests.strength.mutants.judge import Judged, judge
from tests.strength.mutants.mutation import Mutant

LONGEST_S = 900.0  # of one mutant, which takes seconds: a kernel that overwrites the runtime's memory may never end


def judge_each(
    mutants: Sequence[Mutant], seed: int, cache: Path, processes: int, done: Callable[[Judged], None] = lambda _: None
) -> list[Judged]:
    """`judge` each mutant in its own process, `processes` at a time. done: called with each result as it ends.

    Raises what the judge raises; a LabError names the mutant.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([judge.__module__])

    def one(mutant: Mutant) -> Judged:
        try:
            return apart(LONGEST_S, _named, mutant, seed, cache, context=context)
        except Hung:
            return Judged.lost(mutant, f"hung: its process did not end in {LONGEST_S:g} s")
        except Crashed as error:
            return Judged.lost(mutant, f"crashed: {error.cause}")

    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(one, mutant) for mutant in mutants]
        try:
            for future in as_completed(futures):
                done(future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _named(mutant: Mutant, seed: int, cache: Path) -> Judged:
    try:
        return judge(mutant, seed, cache)
    except LabError as error:  # not the end of its process: LabError, whatever the subclass
        raise LabError(f"mutant {mutant.name}: {error.cause}", error.remedy) from error

"""Table of the mutants that are written by hand, by class."""

from collections.abc import Sequence

from experiments.tables.result_table import COUNTED, ResultTable
from tests.strength.mutants.judge import Judged
from tests.strength.mutants.score import Score

QUESTION = "how many faults in kernels the validator finds, and how many weaker checks would find"
NOTES = (
    "killed: found by the validator on some grid, or by the race detector if only it can; equivalent: no run can show "
    "it, for the reason given. The last two columns count the faults that a check of the final token would find, and "
    "torch.testing.assert_close on the final logits, after three steps from a random history.",
)


def summary(found: Sequence[Judged]) -> ResultTable:
    """A row for each class, and their sum. Notes name every survivor and equivalent mutant with the reason."""

    def row(name: str, ones: Sequence[Judged]) -> dict[str, str | int]:
        score = Score(ones)
        return {
            "class": name,
            "mutants": len(ones),
            "killed": score.full,
            "survived": len(score.survivors),
            "equivalent": len(score.equivalent),
            "final token": sum(one.token for one in ones),
            "final logits": sum(one.logits for one in ones),
        }

    kinds = list(dict.fromkeys(one.mutant.kind for one in found))
    table = [row(kind, [one for one in found if one.mutant.kind == kind]) for kind in kinds]
    total = Score(found)
    notes = [*NOTES, *(f"survived: {one.title}: {one.how or one.fate}" for one in total.survivors)]
    notes += [f"equivalent: {one.title}: {one.mutant.reason}" for one in total.equivalent]
    return ResultTable("mutants", QUESTION, [*table, row("all", found)], COUNTED, notes)

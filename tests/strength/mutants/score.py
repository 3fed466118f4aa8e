"""Table of mutants' fates, by class: the shares of faults that a plain and a full validation find."""

from collections import Counter
from collections.abc import Sequence

from experiments.tables.result_table import COUNTED, ResultTable
from tests.strength.mutants.generated import AREA, equivalent
from tests.strength.mutants.judge import FULL, NOT_COMPILED, PLAIN, RACE, SAME_CODE, SURVIVED, Judged

QUESTION = "how many small faults in the device code the validation finds"
GOALS = {"plain": 0.85, "full": 0.97}  # shares of the operators' faults that a validation must find
NOTE = (
    "not compiled, same code: no mutants by operator, since a compiler refuses them or makes the same code of them. "
    "equivalent: no result can differ, for the reason in the list or beside the line. plain: found by what a plain run "
    "checks; full: by all trials or the race detector."
)


class Score:
    """Counts of some mutants' fates."""

    def __init__(self, found: Sequence[Judged]) -> None:
        self.tried = len(found)
        fates = Counter(one.fate for one in found)
        self.not_compiled, self.same_code, self.plain = (fates[fate] for fate in (NOT_COMPILED, SAME_CODE, PLAIN))
        self.full = self.plain + fates[FULL] + fates[RACE]
        # A mutant written by hand must have code of its own.
        survived = [one for one in found if not one.found and (one.mutant.area != AREA or one.fate == SURVIVED)]
        self.equivalent = [one for one in survived if equivalent(one.mutant)]
        self.survivors = [one for one in survived if not equivalent(one.mutant)]

    @property
    def faults(self) -> int:
        return self.full + len(self.survivors)

    def share(self, kind: str) -> float:
        """The found share of the faults: by a `plain` or a `full` validation."""
        return (self.plain if kind == "plain" else self.full) / self.faults if self.faults else 1.0

    @property
    def reached(self) -> bool:
        return all(self.share(kind) >= goal for kind, goal in GOALS.items())

    def row(self, name: str) -> dict[str, str | int | float | None]:
        return {
            "class": name,
            "tried": self.tried,
            "not compiled": self.not_compiled,
            "same code": self.same_code,
            "equivalent": len(self.equivalent),
            "faults": self.faults,
            "plain": self.plain,
            "full": self.full,
            "survived": len(self.survivors),
            **{f"{kind} %": round(100 * self.share(kind), 1) if self.faults else None for kind in GOALS},
        }


def summary(found: Sequence[Judged], of: int) -> ResultTable:
    """A row for each class, and their sum; notes name what a plain validation misses, and every survivor.

    of: the number of mutants from which `found` were drawn.
    """
    kinds = dict.fromkeys(one.mutant.kind for one in found)
    rows = [Score([one for one in found if one.mutant.kind == kind]).row(kind) for kind in kinds]
    total = Score(found)
    notes = [NOTE, f"{len(found)} of {of} mutants were tried."]
    notes += [f"survived: {one.title}: {one.how or one.fate}" for one in total.survivors]
    notes += [f"found by a full validation only: {one.title}: {one.how}" for one in found if one.fate in (FULL, RACE)]
    notes += [f"equivalent: {one.title}: {equivalent(one.mutant)}" for one in total.equivalent]
    return ResultTable("mutants", QUESTION, [*rows, total.row("all")], COUNTED, notes)

"""Table of the mutants that are written by hand, by class."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.tables.result_table import COUNTED, ResultTable

if TYPE_CHECKING:
    from tests.strength.mutants.checks import MutantResult

QUESTION = "how many faults in kernels the validator finds, and how many weaker checks would find"
NOTES = (
    "killed: found by the validator on some grid, or by the race detector if only it can; equivalent: no run can show "
    "it, for the reason given, and it passes. The last two columns count the faults that a check of the final token "
    "would find, and torch.testing.assert_close on the final logits, after three steps from a random history.",
)


def summary(found: "Sequence[MutantResult]") -> ResultTable:
    """A row for each class, and their sum. Notes name every survivor and equivalent mutant with the reason."""
    from tests.strength.mutants.checks import TRIAL_SEEDS

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
    seeds = {one.title: f"found with {one.seeds} seeds of {TRIAL_SEEDS}" for one in survived if one.seeds is not None}
    notes += [f"survived: {one.title}: {seeds.get(one.title, one.mutant.reason)}" for one in survived]
    notes += [f"equivalent: {one.title}: {one.mutant.reason}" for one in equivalent]
    notes += [f"killed, but listed as equivalent: {one.title}: {one.how}" for one in equivalent if one.killed]
    return ResultTable("mutants", QUESTION, [*table, row("all", found)], COUNTED, notes)

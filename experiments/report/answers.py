"""Answers of experiments: the whole table, a short one for README, and one sentence."""

from typing import Any

from common.display.table import Table
from common.errors import LabError
from experiments.report.evidence import NOTHING, Evidence, Record, model_of

COMMANDS = {  # of records that no experiment makes
    "coverage": "python -m tests.strength.coverage",
    "mutants": "python -m tests.strength.mutants",
    "operators": "python -m tests.strength.mutants operators=true",
    "soak": "make soak",
}
BASIS = {"measured": "Measured on a GPU", "counted": "Counted, not timed", "estimated": "Estimated, not measured"}


# Columns of an experiment's table that a document shows, by the beginnings of their names.
DIGESTS = {"rivals": ("system", "validated", "same ids", "tok/s at")}


def experiment(name: str, evidence: Evidence) -> Table:
    """The newest answer of an experiment, with its notes."""
    row = evidence.result(name)
    if not row:
        return _missing(name)
    missing = [f"Needs a GPU: {row['needs_gpu']}"] if row["needs_gpu"] else []
    return Table.of(row["table"], row["columns"], [f"{_about(row)}.", *row["notes"], *missing])


def digest(name: str, evidence: Evidence) -> Table:
    """The columns of an answer that README shows; its basis stands below, the rest on the page.

    Raises LabError for an experiment that has no digest.
    """
    if name not in DIGESTS:
        raise LabError(f"no digest of {name}", f"known: {', '.join(DIGESTS)}; or write experiment:{name}")
    row = evidence.result(name)
    if not row:
        return _missing(name)
    columns = [column for column in row["columns"] if column.startswith(DIGESTS[name])]
    return Table.of(row["table"], columns, [f"{_about(row)}."])


def _about(row: Record) -> str:
    """`Measured on a GPU, H200, qwen3_0_6b`: the basis of an answer."""
    device = (row["provenance"].get("gpu") or {}).get("name")
    return ", ".join(filter(None, (BASIS.get(row.get("basis", ""), "Basis unknown"), device, model_of(row))))


def sentence(name: str, evidence: Evidence) -> str:
    """Result of one of SENTENCES in one sentence. Raises LabError for another name."""
    if name not in SENTENCES:
        raise LabError(f"no sentence on {name}", f"known: {', '.join(SENTENCES)}")
    row = evidence.result(name)
    return SENTENCES[name](row) if row else f"There is no record of {name} yet."


def _mutants(row: Record) -> str:
    total = next(line for line in row["table"] if line["class"] == "all")
    equal, killed = total["equivalent"], total["killed"]
    rest = f"{equal} are equivalent, so the kernel is still right" if equal else "none is equivalent"
    lost = "none survived" if not total["survived"] else f"**{total['survived']} survived**"
    return (
        f"Of {total['mutants']} faults planted one at a time, {killed} are found, {rest}, and {lost}. A comparison of "
        f"the final token alone would miss {killed - total['final token']} of the {killed}, "
        f"`torch.testing.assert_close` on the final logits {killed - total['final logits']} (by class in the "
        "report)."
    )


def _operators(row: Record) -> str:
    total = next(line for line in row["table"] if line["operator"] == "all")
    return (
        f"Of {total['drawn']} changes that operators made of single lines of device code, {total['faults']} are "
        f"faults; `validate=plain` finds {total['plain %']:g} % of them and `validate=full` {total['full %']:g} % "
        "(by operator, with the survivors, in the report)."
    )


def _soak(row: Record) -> str:
    tried = list(dict.fromkeys(line["tried"] for line in row["table"]))
    wrong = sum(line["went wrong"] for line in row["table"])
    outcome = "nothing went wrong" if not wrong else f"**{wrong} went wrong**"
    return f"The last soak: {', '.join(tried)}; {outcome} (by promise in the report)."


def _coverage(row: Record) -> str:
    total = next(line for line in row["table"] if line["file"] == "all")
    kinds = [name for name in total if f"{name} %" in total]
    shares = ", ".join(f"{total[f'{kind} %']:g} % of {total[kind]:,} {kind}" for kind in kinds)
    left = total["no reason"]
    rest = f"**{left} others have no reason**" if left else "everything else has its reason"
    return (
        f"Of the CUDA text, the validation of {len(row['stacks'])} stacks executes {shares}; {rest} "
        f"(by file in the report)."
    )


SENTENCES: dict[str, Any] = {
    "mutants": _mutants,
    "operators": _operators,
    "coverage": _coverage,
    "soak": _soak,
}


def _missing(name: str) -> Table:
    command = COMMANDS.get(name, f"python -m experiments experiment={name} results=experiments/results/GPU.jsonl")
    return Table.of([{"experiment": name, "found": f"{NOTHING}: {command}"}])

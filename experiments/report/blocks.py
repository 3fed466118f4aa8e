"""Generated blocks in Markdown files: what stands between `<!-- generated:NAME -->` and `<!-- /generated -->`."""

import re
from collections.abc import Callable

from common.errors import LabError
from experiments.report import answers, ladder, overview, variants
from experiments.report.evidence import Evidence
from experiments.report.excerpt import excerpt
from experiments.report.table import Table, Text

Block = Table | Text
BEGIN = re.compile(r"^<!-- generated:([^\s>]+) -->$", re.MULTILINE)
END = "<!-- /generated -->"
ALONE: dict[str, Callable[[Evidence], Block]] = {
    "variants": overview.gallery,
    "planned": overview.planned,
    "ladder": ladder.table,
    "steps": ladder.summary,
    "goals": ladder.goals,
    "published": overview.published,
    "records": overview.origins,
}
OF: dict[str, Callable[[str, Evidence], Block]] = {
    "changes": variants.changes,
    "code": excerpt,
    "experiment": answers.experiment,
    "digest": answers.digest,
    "sentence": answers.sentence,
}


def make(name: str, evidence: Evidence) -> Block:
    """The contents of the block `name`. Raises LabError for a name that is not known.

    variants, published, planned, ladder, steps, goals, records; changes:VARIANT,...; code:FILE; experiment:NAME,
    digest:NAME and sentence:NAME of an experiment, in full, as a short table and as one sentence.
    """
    kind, _, argument = name.partition(":")
    if name in ALONE:
        return ALONE[name](evidence)
    if kind in OF and argument:
        return OF[kind](argument, evidence)
    known = ", ".join([*ALONE, *(f"{each}:..." for each in OF)])
    raise LabError(f"no generated block {name}", f"known: {known}")


def fill(text: str, file: str, make: Callable[[str], Block]) -> str:
    """`text` with every block made again. Raises LabError for a block without an end, or of an unknown name."""
    out, at = [], 0
    for start in BEGIN.finditer(text):
        if start.start() < at:
            raise LabError(f"{file}: block {start[1]} begins inside another", f"write {END} on a line before it")
        stop = text.find(f"\n{END}", start.end())
        if stop < 0:
            raise LabError(f"{file}: block {start[1]} has no end", f"write {END} on a line below it")
        out += [text[at : start.end()], "\n", make(start[1]).markdown()]
        at = stop
    return "".join(out) + text[at:]


def names(text: str) -> list[str]:
    """The blocks of `text`, in order."""
    return [found[1] for found in BEGIN.finditer(text)]


def differing(text: str, file: str, make: Callable[[str], Block]) -> list[str]:
    """Names of the blocks that are not what the records give."""
    fresh = fill(text, file, make)
    return [name for name, old, new in zip(names(text), _bodies(text), _bodies(fresh), strict=True) if old != new]


def _bodies(text: str) -> list[str]:
    return [text[found.end() : text.find(f"\n{END}", found.end())] for found in BEGIN.finditer(text)]

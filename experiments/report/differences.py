"""Differences of a variant from its parent: in the source, and in the instructions compiled from it."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from common.compile.source import build
from common.model.shapes import Model
from common.stacks.catalog import Catalog
from experiments.report.evidence import Record
from experiments.report.table import Table

CONTEXT = 1  # lines around a change


@dataclass(frozen=True)
class SourceDifference:
    """Unified diff of the flattened texts; `current`: whether today's source is still the one of the record."""

    lines: tuple[str, ...]
    current: bool


def source(row: Record, parents: Sequence[str], catalog: Catalog) -> SourceDifference:
    """The text of a record's stack against that of `parents`, for the record's model, knobs and threads."""
    model = Model(**row["model"])
    parent, own = (
        build([catalog.variants[name] for name in names], model, row["threads"], row["knobs"])
        for names in (parents, row["stack"])
    )
    old, new = (" + ".join(each.stack) or "baseline" for each in (parent, own))
    lines = difflib.unified_diff(parent.text.splitlines(), own.text.splitlines(), old, new, n=CONTEXT, lineterm="")
    return SourceDifference(tuple(lines), own.sha == row["source_sha"])


def sass(row: Record, base: Record, arch: str) -> Table | None:
    """Instructions of the two kernels that differ in number, the largest change first; None where one was not read."""
    own, old = (each["resources"].get(arch) for each in (row, base))
    if not own or not old:
        return None
    before, after = old["histogram"], own["histogram"]
    columns = [f"opcode, {arch}", "parent", row["variant"], "change"]
    rows = [(name, before.get(name, 0), after.get(name, 0)) for name in sorted(before.keys() | after.keys())]
    changed = sorted((each for each in rows if each[1] != each[2]), key=lambda each: -abs(each[2] - each[1]))
    lines = [dict(zip(columns, (*each, each[2] - each[1]), strict=True)) for each in changed]
    totals = ("all", sum(before.values()), sum(after.values()))
    lines.insert(0, dict(zip(columns, (*totals, totals[2] - totals[1]), strict=True)))
    return Table(columns, lines, records=[row["id"], base["id"]])

"""Single variants against their parents, and their sources."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from common.compile.source import build
from common.display.table import Table
from common.model.shapes import Model
from experiments.report.evidence import NOTHING, Evidence, Record, totals
from experiments.report.timed import time_of
from experiments.suite.sass import difference

COUNTED = "Counts of one token at position 1 on a CPU, and what ptxas made of the kernel: not GPU time."
INSPECT = "python -m experiments experiment=sass results=experiments/results/host.jsonl"
ARCH = "sm_90"
ARCHS = ("sm_80", ARCH, "sm_120")
COUNTS = {  # row of a variant's table: field of `totals`
    "grid barriers": "grid_barriers",
    "block barriers": "block_barriers",
    "load instructions": "load_instructions",
    "weight bytes": "weights",
    "activation bytes": "activations",
    "bytes prefetched": "prefetched",
    "bytes copied asynchronously": "copied_async",
    "bytes copied in bulk": "copied_bulk",
    "bytes that L2 is asked to keep": "kept",
    "shuffles": "shuffles",
    "atomics": "atomics",
}
EXACT = 10_000  # counts below it are shown to the last one
CONTEXT = 1  # lines around a change of a source


def against_parent(name: str, evidence: Evidence) -> Table:
    """One variant: every count that differs from its parent's, resources, and GPU time where there is some."""
    (row, base), (built, built_base) = evidence.counted(name), evidence.built(name)
    if not row:
        return Table.of([{"variant": name, "found": NOTHING}])
    after, before = totals(row["counts"]), totals(base["counts"]) if base else {}
    lines = []
    for title, key in COUNTS.items():
        if before.get(key, 0) != after.get(key, 0) or key in ("grid_barriers", "load_instructions"):
            lines.append(_line(name, title, before.get(key, 0) if base else None, after.get(key, 0)))
    for arch in ARCHS:
        own, old = (each and each["resources"].get(arch) for each in (built, built_base))
        for title, key in (("registers", "registers"), ("bytes spilled", "spill_bytes"), ("shared memory", "shared")):
            if own and (key == "registers" or (old or {}).get(key) != own[key]):
                lines.append(_line(name, f"{title}, {arch}", old[key] if old else None, own[key]))
    notes = [f"{COUNTED} Counts of {row['model']['name']} on {row['blocks']} blocks of {row['threads']} threads."]
    if built:
        compiler = built["provenance"].get("nvrtc") or "of an unknown version"
        notes[0] += f" Registers, spills and shared memory of the same model, by NVRTC {compiler}."
    else:
        notes[0] += f" No registers of this model yet: {INSPECT}."
    notes += [f"Published: {evidence.entry(name).published}."] if evidence.entry(name).published else []
    notes.append(f"GPU time: {time_of(name, evidence)}.")
    return Table.of(lines, notes=notes)


def change(key: str, after: Mapping[str, int], before: Mapping[str, int]) -> str:
    """`170 (-56)` or, of large counts, `2.1 M (-40 %)`."""
    if not after:
        return "-"
    own, old = after.get(key, 0), before.get(key, 0) if before else None
    shown = f"{own:,}" if own < 1e6 else f"{own / 1e6:.3g} M" if own < 1e9 else f"{own / 1e9:.3g} G"
    if old is None or own == old:
        return shown
    if own < EXACT and old < EXACT:
        return f"{shown} ({own - old:+,})"
    if not old:
        return f"{shown} (new)"
    percent = round(100 * (own - old) / old)
    return f"{shown} ({percent:+,} %)" if percent else shown


def _line(name: str, title: str, old: int | None, own: int) -> dict[str, Any]:
    if old is None or own == old:
        shown = "-" if old is None else "0"
    else:
        shown = f"{100 * (own - old) / old:+.1f} %" if old else "new"
    return {"per token": title, "parent": old, name: own, "change": shown}


def source_difference(row: Record, parents: Sequence[str], evidence: Evidence) -> tuple[list[str], bool]:
    """Unified diff of the texts of a record's stack and of `parents`, for the record's model, knobs and threads.

    The flag is True if the record is of today's text.
    """
    known, model = evidence.catalog.variants, Model(**row["model"])
    parent, own = (
        build([known[name] for name in names], model, row["threads"], row["knobs"]) for names in (parents, row["stack"])
    )
    texts = (parent.text.splitlines(), own.text.splitlines())
    lines = difflib.unified_diff(*texts, parent.name, own.name, n=CONTEXT, lineterm="")
    return list(lines), own.sha == row["source_sha"]


def sass_difference(row: Record, base: Record) -> Table | None:
    """Instructions of two kernels that differ in number, the largest change first; None where one was not read."""
    own, old = (each["resources"].get(ARCH) for each in (row, base))
    if not own or not old:
        return None
    before, after = old["histogram"], own["histogram"]
    changed = [(name, before.get(name, 0), after.get(name, 0)) for name, _ in difference(after, before)]
    total = ("all", sum(before.values()), sum(after.values()))
    return Table.of(
        [
            {f"opcode, {ARCH}": name, "parent": few, row["variant"]: many, "change": many - few}
            for name, few, many in (total, *changed)
        ]
    )

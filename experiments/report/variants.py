"""Single variants against their parents: all of it for the page, a few rows for the journal, and their sources."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from common.compile.source import build
from common.display.table import Table, cell
from common.model.shapes import Model
from common.stacks.catalog import BASELINE
from experiments.report.evidence import NOTHING, Evidence, Pair, Record, model_of, totals
from experiments.report.predicted import OPEN, effect, predicted
from experiments.suite.sass import difference
from experiments.tables.row import Forecast

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
MINOR = ("shuffles", "atomics")  # rows that the journal leaves to the page
SMALL = 0.05  # a change of a large count that the journal does not show
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
    timed, forecast = evidence.timed(name), predicted(name, evidence)
    notes += [f"Published: {evidence.entry(name).published}."] if evidence.entry(name).published else []
    if forecast:
        against = f", against the parent {forecast.change}" if forecast.change else ""
        notes.append(f"Predicted, not measured: {forecast.time} us on {forecast.gpu}{against}.")
    notes += [f"GPU time: {effect(each)}." for each in timed] or [f"GPU time: {OPEN}."]
    return Table.of(lines, notes=notes)


def changes(names: str, evidence: Evidence) -> Table:
    """`A,B`: a column for each variant and a row for each thing that one of them changes; no row of zeros.

    A column of the parent's values stands first where all have the same parent.
    """
    chosen = names.split(",")
    parents = {evidence.stack_of(name)[1] for name in chosen}
    parent = (" + ".join(next(iter(parents))) or BASELINE) if len(parents) == 1 else None
    heads = ["per token", *([parent] if parent and [parent] != chosen else []), *chosen]
    counted, built = map(evidence.counted, chosen), map(evidence.built, chosen)
    rows = [*_count_rows(list(counted)), *_resource_rows(list(built)), *_time_rows(chosen, evidence)]
    shown = ([title, *([old] if len(heads) > len(chosen) + 1 else []), *own] for title, old, own in rows)
    return Table.of([dict(zip(heads, row, strict=True)) for row in shown], heads)


Row = tuple[str, str, list[str]]  # title, the first variant's parent, each variant


def _count_rows(counted: Sequence[Pair]) -> list[Row]:
    sums = [tuple(totals(row["counts"]) if row else {} for row in pair) for pair in counted]
    alone = all(row and row["stack"] == base["stack"] for row, base in counted if base)  # the baseline
    rows = []
    for title, key in COUNTS.items():
        if title in MINOR or not (alone or any(_differs(key, *pair) for pair in sums)):
            continue
        rows.append((title, change(key, sums[0][1], {}), [change(key, after, before) for after, before in sums]))
    return rows


def _differs(key: str, after: Mapping[str, int], before: Mapping[str, int]) -> bool:
    own, old = after.get(key, 0), before.get(key, 0)
    most = 0 if key == "grid_barriers" else SMALL * (own + old) / 2
    return bool(after and before) and abs(own - old) > most


def _resource_rows(pairs: Sequence[Pair]) -> list[Row]:
    """Registers of all archs in one row; shared memory, which all archs have alike, where it changes."""
    rows: list[Row] = []
    if any(own for own, _ in pairs):
        title = f"registers ({', '.join(ARCHS)})"
        rows.append((title, _resource("registers", pairs[0][1]), [_resource("registers", own) for own, _ in pairs]))
    shared = [tuple(row and row["resources"].get(ARCH, {}).get("shared") for row in pair) for pair in pairs]
    if any(own != old for own, old in shared):
        rows.append(("shared memory of a block, bytes", cell(shared[0][1]), [cell(own) for own, _ in shared]))
    return rows


def _resource(key: str, row: Mapping[str, Any] | None) -> str:
    found = [row["resources"].get(arch, {}).get(key) for arch in ARCHS] if row else []
    return ", ".join(map(cell, found)) or "-"


def _time_rows(chosen: Sequence[str], evidence: Evidence) -> list[Row]:
    """A row for each GPU and model that something was timed on; without one, the predictions."""
    timed = {name: {(row["device"].get("gpu"), model_of(row)): row for row in evidence.timed(name)} for name in chosen}
    if kinds := sorted({kind for found in timed.values() for kind in found}):
        return [
            (f"time, {gpu}, {model}", "-", [_measured(timed[name].get((gpu, model))) for name in chosen])
            for gpu, model in kinds
        ]
    found = [predicted(name, evidence) for name in chosen]
    if not any(found):
        return []
    parent = evidence.stack_of(chosen[0])[1]
    old = predicted(parent[0] if parent else BASELINE, evidence) if len(parent) < 2 else None
    return [
        (
            f"predicted us, {gpu}",
            f"{old.microseconds:,.0f}" if old and old.gpu == gpu else "-",
            [_forecast(each if each and each.gpu == gpu else None) for each in found],
        )
        for gpu in dict.fromkeys(each.gpu for each in found if each)
    ]


def _measured(row: Mapping[str, Any] | None) -> str:
    return effect(row).partition(": ")[2] if row else "-"


def _forecast(found: Forecast | None) -> str:
    if not found or found.note:
        return found.note if found else "-"
    return str(found.time if found.effect is None else f"{found.microseconds:,.0f} ({found.change})")


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

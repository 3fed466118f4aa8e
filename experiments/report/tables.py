"""The generated tables, by the name they have in a marker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.errors import LabError
from experiments.outcome import cell
from experiments.report.evidence import Evidence, Record, totals

OPEN = "open: needs a GPU"
NOTHING = "no record yet"
COUNTED = "Counts of one token at position 1 on the host device, and what ptxas made of the kernel: not GPU time."
ARCH = "sm_90"
ARCHS = ("sm_80", ARCH, "sm_120")
COUNTS = {  # row of a variant's table: field of `totals`
    "grid barriers": "grid_barriers",
    "block barriers": "block_barriers",
    "load instructions": "load_instructions",
    "weight bytes": "weights",
    "activation bytes loaded": "activations",
    "bytes prefetched": "prefetched",
    "bytes copied asynchronously": "copied_async",
    "shuffles": "shuffles",
    "atomics": "atomics",
}


@dataclass(frozen=True)
class Table:
    """columns in order; lines: {column: value}; notes: paragraphs below; records: ids of what it was made from.

    keys: for each line the id of the record it was made from, where there is one.
    """

    columns: Sequence[str]
    lines: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    records: Sequence[str] = ()
    keys: Sequence[str | None] = field(default_factory=tuple)


def make(name: str, evidence: Evidence) -> Table:
    """The table of a marker: variants, records, variant:NAME or experiment:NAME. Raises LabError for another."""
    kind, _, argument = name.partition(":")
    if name == "variants":
        return variants(evidence)
    if name == "records":
        return origins(evidence)
    if kind == "variant" and argument:
        return against_parent(argument, evidence)
    if kind == "experiment" and argument:
        return experiment(argument, evidence)
    raise LabError(f"no generated block {name}", "known: variants, records, variant:NAME, experiment:NAME")


def variants(evidence: Evidence) -> Table:
    """Every variant and named stack: what was published, what is counted, and what time says."""
    lines, keys, used = [], [], []
    for name in evidence.names:
        run, (row, base), (built, _) = evidence.validated(name), evidence.counted(name), evidence.built(name)
        sums, before = (totals(each["counts"]) if each else {} for each in (row, base))
        found = built["resources"].get(ARCH) if built else None
        entry = evidence.catalog.variants.get(name) or evidence.catalog.stacks[name]
        lines.append(
            {
                "variant": name,
                "published": entry.published or "-",
                "validation": run["status"] if run else NOTHING,
                "grid barriers": _change("grid_barriers", sums, before),
                "load instructions": _change("load_instructions", sums, before),
                "activation bytes": _change("activations", sums, before),
                f"registers, spills ({ARCH})": f"{found['registers']}, {found['spill_bytes']}" if found else "-",
                "time against parent": "; ".join(map(effect, evidence.timed(name))) or _forecast(name, evidence),
            }
        )
        keys.append((row or run or {}).get("id"))
        used.append((row, built, run))
    counted, built, proved = (
        ", ".join(sorted({row["model"]["name"] for row in rows if row})) or "none" for rows in zip(*used, strict=True)
    )
    notes = [
        f"{COUNTED} In brackets the change against the variant's parent; load instructions are those of all threads.",
        f"Models: {proved} for the validation, {counted} for the counts, {built} for registers and bytes spilled.",
    ]
    ablation = evidence.outcome("ablation")
    if any("predicted" in line["time against parent"] for line in lines):
        gpu = next(name.partition(", ")[2] for name in ablation["columns"] if name.startswith("predicted us, "))
        notes.append(f"Predicted, not measured: a token of {_model(ablation)} on {gpu}, from counts.")
    records = [row["id"] for rows in used for row in (*rows, ablation) if row]
    return Table(list(lines[0]), lines, notes, records, keys)


def against_parent(name: str, evidence: Evidence) -> Table:
    """One variant: every count that differs from its parent's, resources, and GPU time where there is some."""
    (row, base), (built, built_base) = evidence.counted(name), evidence.built(name)
    if not row:
        return Table(["variant", "found"], [{"variant": name, "found": NOTHING}])
    columns = ["per token", "parent", name, "change"]
    after, before = totals(row["counts"]), totals(base["counts"]) if base else {}
    lines = []
    for title, key in COUNTS.items():
        if before.get(key, 0) != after.get(key, 0) or key in ("grid_barriers", "load_instructions"):
            lines.append(_line(columns, title, before.get(key, 0) if base else None, after.get(key, 0)))
    for arch in ARCHS:
        own, old = (each and each["resources"].get(arch) for each in (built, built_base))
        for title, key in (("registers", "registers"), ("bytes spilled", "spill_bytes"), ("shared memory", "shared")):
            if own and (key == "registers" or (old or {}).get(key) != own[key]):
                lines.append(_line(columns, f"{title}, {arch}", old and old[key], own[key]))
    notes = [f"{COUNTED} Counts of {row['model']['name']} on {row['blocks']} blocks of {row['threads']} threads."]
    if built:
        notes[0] += f" Registers, spills and shared memory of {built['model']['name']}."
    timed = evidence.timed(name)
    entry = evidence.catalog.variants.get(name) or evidence.catalog.stacks[name]
    notes += [f"Published: {entry.published}."] if entry.published else []
    notes += _predicted(name, evidence)
    notes += [f"GPU time: {effect(each)}." for each in timed] or [f"GPU time: {OPEN}."]
    return Table(columns, lines, notes, [each["id"] for each in (row, base, built, built_base, *timed) if each])


def experiment(name: str, evidence: Evidence) -> Table:
    """The newest answer of an experiment, with what it says beside the table."""
    row = evidence.outcome(name)
    if not row:
        found = f"{NOTHING}: python -m experiments experiment={name} results=experiments/results/GPU.jsonl"
        return Table(["experiment", "found"], [{"experiment": name, "found": found}])
    columns = row.get("columns") or list(row["table"][0] if row["table"] else {"found": None})
    basis = {"measured": "Measured on a GPU", "counted": "Counted, not timed", "predicted": "Predicted, not measured"}
    device = row["provenance"].get("gpu") or {}
    about = [basis.get(row.get("basis", ""), "Basis unknown"), device.get("name"), _model(row)]
    notes = [", ".join(filter(None, about)) + ".", *row["notes"]]
    if row["needs_gpu"]:
        notes.append(f"Needs a GPU: {row['needs_gpu']}")
    return Table(columns, row["table"], notes, [row["id"]])


def origins(evidence: Evidence) -> Table:
    """Where the records come from: one line per machine, model and commit."""
    groups: dict[tuple, list[Record]] = {}
    for row in evidence.records:
        origin = row["provenance"]
        gpu = (origin.get("gpu") or {}).get("name")
        git = origin.get("git") or {}
        commit = f"{(git.get('commit') or 'unknown')[:12]}{'+' if git.get('dirty') else ''}"
        device = row.get("device") or {}
        device = device.get("device", "-") if isinstance(device, dict) else str(device)
        groups.setdefault((gpu or origin.get("cpu"), device, _model(row) or "-", commit), []).append(row)
    columns = ["machine", "device", "model", "commit", "records", "newest"]
    lines = [dict(zip(columns, (*key, len(rows), rows[-1]["time"][:10]), strict=True)) for key, rows in groups.items()]
    notes = ["A + behind a commit: the code differed from it."] if lines else ["There are no records yet."]
    return Table(columns, lines, notes, [row["id"] for row in evidence.records])


def _figures(name: str, evidence: Evidence) -> dict[str, float]:
    """What the experiment `ablation` predicts for a variant, by its column; nothing where it was measured."""
    row = evidence.outcome("ablation")
    if not row or row["basis"] != "predicted":
        return {}
    line = next((line for line in row["table"] if line.get("variant") == name), {})
    return {column: value for column, value in line.items() if column.startswith("predicted") and value is not None}


def _predicted(name: str, evidence: Evidence) -> list[str]:
    figures = [f"{key.removeprefix('predicted ')} {cell(value)}" for key, value in _figures(name, evidence).items()]
    return [f"Predicted, not measured: {'; '.join(figures)}."] if figures else []


def _forecast(name: str, evidence: Evidence) -> str:
    """`predicted -7.1 %`; of a stack that is its own parent, `predicted 1,963 us`."""
    figures = list(_figures(name, evidence).items())
    if not figures:
        return OPEN
    column, value = figures[-1]
    return f"predicted {value:+.1f} %" if "effect" in column else f"predicted {cell(value)} us"


def _model(row: Record) -> str | None:
    model = row.get("model")
    return model.get("name") if isinstance(model, dict) else model


def _change(key: str, after: Mapping[str, int], before: Mapping[str, int]) -> str:
    """`170 (-56)` or, of large counts, `2.1 M (-40 %)`."""
    if not after:
        return "-"
    own, old = after.get(key, 0), before.get(key, 0) if before else None
    shown = f"{own:,}" if own < 100_000 else f"{own / 1e6:.3g} M" if own < 1e9 else f"{own / 1e9:.3g} G"
    if old is None or own == old:
        return shown
    if own < 10_000:
        return f"{shown} ({own - old:+,})"
    percent = round(100 * (own - old) / max(old, 1))
    return f"{shown} ({percent:+} %)" if percent else shown


def _line(columns: Sequence[str], title: str, old: int | None, own: int) -> dict[str, Any]:
    if old is None or own == old:
        change = "-" if old is None else "0"
    else:
        change = f"{100 * (own - old) / old:+.1f} %" if old else "new"
    return dict(zip(columns, (title, old, own, change), strict=True))


def effect(row: Record) -> str:
    """`H200, qwen3_0_6b at 1: FASTER -3.2 % [-3.5, -2.9]` for every position of a run on a GPU."""
    parts = []
    for found in row["latencies"]:
        pair = found.get("comparison")
        low, effect, high = (100 * pair[each] for each in ("low", "effect", "high")) if pair else (0, 0, 0)
        spread = f" {effect:+.1f} % [{low:+.1f}, {high:+.1f}]" if pair else ""
        median = 1e6 * found["seconds"]["median"]
        parts.append(f"{median:.1f} us at {found['position']}: {found['verdict'] or '-'}{spread}")
    return f"{row['device'].get('gpu', 'GPU')}, {row['model']['name']}: {', '.join(parts)}"

"""When every block worked and when it waited, in one step: stamps that the kernel itself leaves, no tool needed."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from common.layout import MAX_BLOCKS, MOMENTS, Layout
from common.model import STAGES

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor

    from common.devices import Session
    from common.stack import Stack
    from experiments.run import Case, Lab

UNWRITTEN = 0x7FC000007FC00000  # two NaN: what the sessions fill scratch with
ORDINAL = (
    "Stamps of the host device are ordinals: they count the stamps of all blocks, so they show who came before whom in "
    "this schedule, and nothing of how long anything takes."
)


@dataclass(frozen=True)
class Timeline:
    """One step. `spans` has a row for each stage, layer and block that stamped.

    begin, end  of the stage's work, as thread 0 of the block saw it
    passed      when the barrier behind it let the block go on; `end` where nothing stands behind it
    unit        "ns" or "ordinal", from the first stamp of the step on
    """

    title: str
    unit: str
    spans: "DataFrame"


def traced(lab: "Lab", stack: "Stack") -> tuple["Lab", "Case"]:
    """`stack` compiled so that every block stamps its stages, and the lab whose sessions have room for that."""
    from common.catalog import read_catalog
    from common.source import build
    from experiments.run import Case

    known = read_catalog().variants
    variants = [known[name] for name in stack.variants]
    source = build(variants, lab.model, lab.config.threads, stack.knobs, trace=True)
    lab = replace(lab, layout=Layout(lab.model, trace=True))
    return lab, Case(stack, source=source, program=lab.device.compile(source))


def read(session: "Session", title: str, device: str) -> Timeline:
    """The last step of a session whose layout has a trace."""
    slot = session.layout.tap("trace")
    stamps = session.scratch()[slot.offset : slot.offset + slot.size]
    return timeline(stamps, session.layout.model.layers, title, "ns" if device == "cuda" else "ordinal")


def timeline(stamps: "Tensor", layers: int, title: str, unit: str) -> Timeline:
    """stamps: the trace slot, fp32, [stage][layer][block][moment] of 64 bits each, NaN where nobody stamped."""
    import pandas
    import torch

    table = stamps.clone().view(torch.int64).view(len(STAGES), layers, MAX_BLOCKS, MOMENTS).numpy()
    stage, layer, block = (table[..., 1] != UNWRITTEN).nonzero()
    begin, end, passed = table[stage, layer, block].T
    start = begin.min() if len(begin) else 0
    spans = pandas.DataFrame(
        {
            "stage": [STAGES[number] for number in stage],
            "layer": layer,
            "block": block,
            "begin": begin - start,
            "end": end - start,
            "passed": [late if late != UNWRITTEN else early for early, late in zip(end, passed, strict=True)] - start,
        }
    )
    return Timeline(title, unit, spans.sort_values(["begin", "block"], ignore_index=True))


def by_stage(found: Timeline) -> "DataFrame":
    """Per stage, over all layers: a block's work and waiting (mean over blocks), work of the slowest, share of waiting.

    Waiting is from the end of a block's work until the barrier behind the stage lets it go on; waiting inside a stage
    (split_kv has a barrier there) counts as work.
    """
    import pandas

    spans = found.spans.assign(
        work=found.spans["end"] - found.spans["begin"], wait=found.spans["passed"] - found.spans["end"]
    )
    blocks = spans.groupby(["stage", "block"])[["work", "wait"]].sum()
    rows = []
    for stage in (*(stage for stage in STAGES if stage in set(spans["stage"])), "all stages"):
        of = blocks.groupby("block").sum() if stage == "all stages" else blocks.loc[stage]
        work, wait = of["work"].mean(), of["wait"].mean()
        rows.append((stage, len(of), work, of["work"].max(), wait, 100 * wait / (work + wait) if work + wait else 0.0))
    unit = found.unit
    heads = ("stage", "blocks", f"work ({unit})", f"slowest block ({unit})", f"waiting ({unit})", "waiting (%)")
    return pandas.DataFrame(rows, columns=heads)


def reading(found: Timeline) -> str:
    """What the table says, in a sentence or two; of ordinals it says that they are no time."""
    table = by_stage(found)
    if found.unit == "ordinal":
        return ORDINAL
    stages, whole = table.iloc[:-1], table.iloc[-1]
    longest = stages.loc[stages["slowest block (ns)"].idxmax(), "stage"]
    waits = stages.loc[stages["waiting (ns)"].idxmax(), "stage"]
    steps = sorted(set(found.spans["begin"]))
    finest = min((b - a for a, b in pairwise(steps)), default=0)
    return (
        f"A block waits {whole['waiting (%)']:.0f} % of the step, most of it behind {waits}; the slowest blocks spend "
        f"most time in {longest}. The clock's steps as seen here are {finest} ns, and stamping itself takes time: "
        "compare shares, and take latencies from a run without trace."
    )


def chrome_trace(found: Timeline, path: Path) -> None:
    """Write Chrome's trace format, which Perfetto opens: a row per block, a slice per stage and per wait.

    The format's unit is the microsecond; an ordinal is written as one.
    """
    scale = 1e-3 if found.unit == "ns" else 1.0
    meta = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{found.title} [{found.unit}]"}}]
    for block in sorted(set(found.spans["block"])):
        meta.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": int(block), "args": {"name": f"block {block}"}})

    def slice_(name: str, kind: str, row: tuple, start: int, stop: int) -> dict:
        about = {"ph": "X", "pid": 0, "tid": int(row.block), "ts": scale * int(start), "dur": scale * int(stop - start)}
        return {"name": name, "cat": kind, **about, "args": {"layer": int(row.layer)}}

    events = []
    for row in found.spans.itertuples():
        events.append(slice_(row.stage, "stage", row, row.begin, row.end))
        if row.passed > row.end:
            events.append(slice_(f"wait after {row.stage}", "wait", row, row.end, row.passed))
    path.write_text(json.dumps({"traceEvents": meta + events, "displayTimeUnit": "ns"}))

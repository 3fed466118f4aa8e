"""Tables and files of a timeline: per stage what its blocks did, what that means, and Chrome's trace format."""

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.model.stages import STAGES
from experiments.run.timeline import Timeline

if TYPE_CHECKING:
    from pandas import DataFrame

ORDINAL = (
    "The blocks of the host device run one at a time, so a timestamp is only an ordinal: it shows the order of the "
    "blocks in this schedule. It does not show how long a block works or waits, or what share of the step that is; "
    "that needs device=cuda."
)


def by_stage(found: Timeline) -> "DataFrame":
    """The table of a profile, a row per stage: `times` of a timeline in ns, `order` of one in ordinals."""
    return times(found) if found.timed else order(found)


def times(found: Timeline) -> "DataFrame":
    """Per stage, over all layers: a block's work and waiting (mean over blocks), work of the slowest, share of waiting.

    Waiting lasts from the end of a block's work until it passes the barrier after the stage. A wait inside a stage
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


def order(found: Timeline) -> "DataFrame":
    """Per stage, in the order in which the stages begin: number of layers, blocks that ran it, "synchronized after it".

    "yes": in every layer no block passed before the last block had ended the stage, as a grid barrier ensures.
    """
    import pandas

    rows = []
    for stage, spans in sorted(found.spans.groupby("stage"), key=lambda group: group[1]["begin"].min()):
        layers = spans.groupby("layer")
        synchronized = (layers["passed"].min() > layers["end"].max()).all()
        blocks = sorted(set(spans["block"]))
        rows.append((stage, len(layers), len(blocks), _ranges(blocks), "yes" if synchronized else "no"))
    return pandas.DataFrame(rows, columns=("stage", "layers", "blocks", "which blocks", "synchronized after it"))


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    ends = [number for number in numbers if number + 1 not in numbers]
    starts = [number for number in numbers if number - 1 not in numbers]
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in zip(starts, ends, strict=True))


def reading(found: Timeline) -> str:
    """Interpretation of the table in a few sentences; for ordinals, that they are not times."""
    if not found.timed:
        return ORDINAL
    table = times(found)
    stages, whole = table.iloc[:-1], table.iloc[-1]
    longest = stages.loc[stages["slowest block (ns)"].idxmax(), "stage"]
    waits = stages.loc[stages["waiting (ns)"].idxmax(), "stage"]
    steps = sorted(set(found.spans["begin"]))
    resolution = min((b - a for a, b in pairwise(steps)), default=0)
    return (
        f"A block waits {whole['waiting (%)']:.0f} % of the step, most of it after {waits}; the slowest blocks spend "
        f"most time in {longest}. The clock's observed resolution is {resolution} ns, and writing timestamps takes "
        "time: compare shares, and take latencies from a run without trace."
    )


def chrome_trace(found: Timeline, path: Path) -> None:
    """Write Chrome's trace format, which Perfetto opens: a row per block, a slice per stage and, if timed, per wait.

    The unit of the format is the microsecond; one ordinal becomes one microsecond.
    """
    scale = 1e-3 if found.timed else 1.0
    meta = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{found.title} [{found.unit}]"}}]
    for block in sorted(set(found.spans["block"])):
        meta.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": int(block), "args": {"name": f"block {block}"}})

    def slice_(name: str, kind: str, row: Any, start: int, stop: int) -> dict[str, Any]:
        about = {"ph": "X", "pid": 0, "tid": int(row.block), "ts": scale * int(start), "dur": scale * int(stop - start)}
        return {"name": name, "cat": kind, **about, "args": {"layer": int(row.layer)}}

    events = []
    for row in found.spans.itertuples():
        events.append(slice_(row.stage, "stage", row, row.begin, row.end))
        if found.timed and row.passed > row.end:
            events.append(slice_(f"wait after {row.stage}", "wait", row, row.end, row.passed))
    path.write_text(json.dumps({"traceEvents": meta + events, "displayTimeUnit": "ns"}))

"""The strip of the page: what each block did in each stage of a step, summed over the layers."""

from typing import Any

from experiments.run.timeline import Timeline

READING = {
    "ns": "Sums over all layers. Writing timestamps takes time of its own: compare shares.",
    "ordinal": "The blocks of the host device run one at a time: how long each works and waits, device=cuda shows.",
}


def strip(found: Timeline) -> dict[str, Any]:
    """Stages in the order in which they begin; of each the blocks' work and wait, None for one that has no part.

    Without times, work and wait are 0.
    """
    spans = found.spans
    blocks = int(spans["block"].max()) + 1
    stages = []
    for stage, rows in sorted(spans.groupby("stage"), key=lambda group: group[1]["begin"].min()):
        work: list[int | None] = [None] * blocks
        wait: list[int | None] = [None] * blocks
        for block, own in rows.groupby("block"):
            work[block] = int((own["end"] - own["begin"]).sum()) if found.timed else 0
            wait[block] = int((own["passed"] - own["end"]).sum()) if found.timed else 0
        stages.append({"stage": stage, "work": work, "wait": wait})
    about = {"title": found.title, "unit": found.unit, "reading": READING[found.unit]}
    return about | {"blocks": blocks, "stages": stages}

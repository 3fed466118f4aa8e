"""Gallery: every variant and named stack, what it changes in the counts of a token, and what time says."""

import re
from collections.abc import Mapping

from common.display.table import Cell, Table
from common.record.measurement import IMPLAUSIBLE
from experiments.report.evidence import Evidence, Record, totals
from experiments.tables.row import microseconds, plausible

OPEN = "no comparable time yet"
EXACT = 10_000  # counts below it are shown to the last one


def gallery(evidence: Evidence) -> Table:
    """Five narrow columns for a page that a phone shows: the idea of each recorded variant, and its changes.

    A variant without records is left out, so that two new files leave the committed page as it is.
    """
    lines = []
    for name in evidence.names:
        counted, times = evidence.counted(name), "; ".join(map(effect, evidence.timed(name)))
        if not counted[0] and not times:
            continue
        sums, before = (totals(row["counts"]) if row else {} for row in counted)
        file = f"variants/{name}.cu" if name in evidence.catalog.variants else f"conf/variant/{name}.yaml"
        idea = evidence.entry(name).idea
        lines.append(
            {
                "variant": Cell(name, link=f"../{file}"),  # from docs/
                "idea": re.split("[:;]", idea)[0],  # details follow
                "exchanges": ", ".join(exchanges(sums, before)),
                "loads": change("load_instructions", sums, before),
                "time against parent": times or OPEN,
            }
        )
    about = (
        "Counts of one token at position 1, executed on a CPU: not GPU time. Each on its own parent: in another stack "
        "the same variant has other counts. In brackets the change against the parent. "
        "Times are of the conditions (cache, positions, grid) under which most rows have one."
    )
    return Table.of(lines, notes=[about])


def effect(row: Record) -> str:
    """`H200, qwen3_0_6b: 500.0 us at 1: FASTER -3.2 % [-3.5, -2.9]` for every position of a run on a GPU."""
    parts = []
    for found in plausible(row):
        pair = found.get("comparison")
        low, middle, high = (100 * pair[each] for each in ("low", "effect", "high")) if pair else (0, 0, 0)
        spread = f" {middle:+.1f} % [{low:+.1f}, {high:+.1f}]" if pair else ""
        verdict = f": {found['verdict']}" if found["verdict"] else ""
        parts.append(f"{microseconds(found):.1f} us at {found['position']}{verdict}{spread}")
    return f"{row['device'].get('gpu', 'GPU')}, {row['model']['name']}: {', '.join(parts) or IMPLAUSIBLE}"


def exchanges(after: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """`3 (-140) barriers`, and `140 (+140) by value` where values are exchanged."""
    barriers, by_value = (change(key, after, before) for key in ("grid_barriers", "by_value"))
    return [f"{barriers} barriers", *([f"{by_value} by value"] if after.get("by_value") else [])]


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
    percent = round(100 * (own - old) / old, 2 if 0 < own < 0.005 * old else None)  # -100 % only if none are left
    return f"{shown} ({percent:+,} %)" if percent else shown

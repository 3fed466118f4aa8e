"""GPU time in the report's tables: what records have measured, or that nobody has."""

from experiments.report.evidence import Evidence, Record
from experiments.tables.row import IMPLAUSIBLE, plausible

OPEN = "not timed yet"


def time_of(name: str, evidence: Evidence) -> str:
    """Measured effects of a variant or named stack on all GPUs, else OPEN."""
    return "; ".join(map(effect, evidence.timed(name))) or OPEN


def effect(row: Record) -> str:
    """`H200, qwen3_0_6b: 500.0 us at 1: FASTER -3.2 % [-3.5, -2.9]` for every position of a run on a GPU."""
    parts = []
    for found in plausible(row):
        pair = found.get("comparison")
        low, middle, high = (100 * pair[each] for each in ("low", "effect", "high")) if pair else (0, 0, 0)
        spread = f" {middle:+.1f} % [{low:+.1f}, {high:+.1f}]" if pair else ""
        median = 1e6 * found["seconds"]["median"]
        parts.append(f"{median:.1f} us at {found['position']}: {found['verdict'] or '-'}{spread}")
    return f"{row['device'].get('gpu', 'GPU')}, {row['model']['name']}: {', '.join(parts) or IMPLAUSIBLE}"

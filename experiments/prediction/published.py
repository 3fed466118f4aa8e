"""Figures that others published of decoding Qwen3-0.6B with bf16 weights, one sequence at a time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One published figure.

    gpu    key of conf/gpu/; stack: what of this lab comes nearest to it, a variant, a named stack or `baseline`
    rate   tokens a second at `position`
    """

    system: str
    gpu: str
    stack: str
    position: int
    rate: float


FIGURES = (
    # The journey that the cooperative kernel's authors tell: where they started, with redundant norms, at the end.
    Figure("MegaQwen, start", "rtx3090", "baseline", 1, 170),
    Figure("MegaQwen, redundant norms", "rtx3090", "redundant_rmsnorm", 1, 242),
    Figure("MegaQwen, all", "rtx3090", "megaqwen", 1, 531),
    Figure("MegaQwen, all", "rtx3090", "megaqwen", 50, 500),
    Figure("MegaQwen, all", "rtx3090", "megaqwen", 100, 472),
    Figure("MegaQwen, all", "rtx3090", "megaqwen", 200, 422),
    Figure("MegaQwen, all", "rtx3090", "megaqwen", 300, 382),
    Figure("AlpinDale", "rtx5090", "persistent", 1, 1014),
)
# Its sweep of producer and consumer warps, RTX 3090: tokens a second, the average over its positions.
RATIOS = {"0:8": 509.9, "1:7": 510.8, "2:6": 489.9, "3:5": 498.7, "4:4": 478.6}

"""What a handful of timings says, and what it does not: medians with intervals, and the verdict on a pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Of the interval that a verdict on a pair needs.
VERDICT_CONFIDENCE = 0.99
# An interval that is shown with a latency, as usual for an error bar.
SHOWN_CONFIDENCE = 0.95
# What is smaller is called SAME: two processes that run one cubin differ by a few tenths of a percent (page placement).
LEAST_EFFECT = 0.005


@dataclass(frozen=True)
class Estimate:
    """A median and the interval it lies in with `SHOWN_CONFIDENCE`; the unit is the samples' own."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the median: 0.005 is half a percent."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True)
class Comparison:
    """How much longer the child takes than its parent: effect -0.1 is 10 % less time. `low` and `high` bound it."""

    effect: float
    low: float
    high: float
    verdict: str


def median_interval(
    samples: Sequence[float], confidence: float = SHOWN_CONFIDENCE, seed: int | None = None
) -> tuple[float, float]:
    """Percentile bootstrap interval of the median (Efron, 1979): quantiles of the medians of resampled samples.

    seed: of the resampling; None draws a fresh one. Raises ValueError without samples.
    """
    values = np.asarray(samples, dtype=float)
    if values.size == 0:
        raise ValueError("no samples")
    resamples = max(2000, round(10 / (1 - confidence)))  # so that ten medians lie outside of the interval, or more
    chosen = np.random.default_rng(seed).integers(values.size, size=(resamples, values.size))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.median(values[chosen], axis=1), [tail, 1 - tail])
    return float(low), float(high)


def estimate(samples: Sequence[float], seed: int | None = None) -> Estimate:
    """Median of `samples` with its interval."""
    low, high = median_interval(samples, seed=seed)
    return Estimate(float(np.median(samples)), low, high)


def least_pairs(confidence: float = VERDICT_CONFIDENCE) -> int:
    """Fewest samples with which any interval can reach `confidence`.

    All n samples lie on one side of the true median with probability 2 * 0.5**n, however far they are apart.
    """
    return math.ceil(math.log2(2 / (1 - confidence)))


def compare(
    parent: Sequence[float],
    child: Sequence[float],
    seed: int | None = None,
    least_effect: float = LEAST_EFFECT,
    confidence: float = VERDICT_CONFIDENCE,
) -> Comparison:
    """The verdict on samples taken in turn: parent[i] and child[i] belong to the same round.

    The effect is the median of child[i] / parent[i] - 1, so that what slows both (heat, clocks) drops out.
    FASTER, SLOWER  the effect is at least `least_effect`, and at least twice as far from 0 as from its interval's ends
    SAME            the effect is smaller, and so is its distance from its interval's ends
    UNSTABLE        neither, or too few rounds for any interval of that confidence
    That an interval excludes 0 is not enough: rounds that follow each other are alike, and a bootstrap of a few of them
    is too narrow. Excluding it twice over left 1 wrong verdict in 1,000 of a kernel against itself with noise of 0.1 to
    2 % per round, correlated 0.3 from round to round, where excluding it once left more than 20.
    """
    if len(parent) != len(child):
        raise ValueError(f"{len(parent)} samples of the parent, {len(child)} of the child")
    ratios = np.asarray(child, dtype=float) / np.asarray(parent, dtype=float) - 1
    effect = float(np.median(ratios))
    low, high = median_interval(ratios, confidence, seed)
    reach = max(effect - low, high - effect)
    if len(ratios) < least_pairs(confidence):
        verdict = "UNSTABLE"
    elif abs(effect) >= least_effect and 2 * reach <= abs(effect):
        verdict = "FASTER" if effect < 0 else "SLOWER"
    elif abs(effect) < least_effect and reach < least_effect:
        verdict = "SAME"
    else:
        verdict = "UNSTABLE"
    return Comparison(effect, low, high, verdict)


def implausible(bytes_read: float, seconds: float, ceiling: float, cached: float = 0) -> bool:
    """Whether `bytes_read` in `seconds` is more than the memory can give; `ceiling` in bytes per second.

    cached: bytes of the GPU's last cache level. That much may have stayed there from the step before.
    """
    return max(0.0, bytes_read - cached) > ceiling * seconds

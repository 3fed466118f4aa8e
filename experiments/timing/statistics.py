"""Statistics of timings: medians with bootstrap confidence intervals, and the verdict on a pair of kernels."""

import math
from collections.abc import Sequence

import numpy as np

from common.record.measurement import Comparison, Estimate

# Confidence level of the interval that decides a verdict.
VERDICT_CONFIDENCE = 0.99
# Confidence level of the interval that is shown with a latency, as usual for an error bar.
SHOWN_CONFIDENCE = 0.95
# A smaller effect is SAME: two processes that run one cubin differ by a few tenths of a percent (page placement).
MIN_EFFECT = 0.005
# Fewest samples whose range can be an interval at this level: all n lie on one side of the true median with
# probability 2 * 0.5**n, whatever their distribution.
MIN_SAMPLES = math.ceil(math.log2(2 / (1 - VERDICT_CONFIDENCE)))


def median_interval(samples: Sequence[float], confidence: float) -> tuple[float, float]:
    """Percentile bootstrap interval of the median (Efron, 1979): quantiles of the medians of resampled samples.

    The resampling has one seed, so that recorded samples give the recorded interval again. Raises ValueError without
    samples.
    """
    values = np.asarray(samples, dtype=float)
    if values.size == 0:
        raise ValueError("no samples")
    resamples = max(2000, round(10 / (1 - confidence)))  # enough that ten lie outside of the interval
    places = np.random.default_rng(0).integers(values.size, size=(resamples, values.size))
    low, high = np.quantile(np.median(values[places], axis=1), ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


def estimate(samples: Sequence[float]) -> Estimate:
    """Median of `samples` with its interval."""
    low, high = median_interval(samples, SHOWN_CONFIDENCE)
    return Estimate(float(np.median(samples)), low, high)


def compare(parent: Sequence[float], child: Sequence[float]) -> Comparison:
    """The verdict on interleaved samples in seconds: parent[i] and child[i] belong to the same round.

    The effect is the median of child[i] / parent[i] - 1, so a slowdown of both (heat, clocks) cancels.
    FASTER, SLOWER  |effect| is at least MIN_EFFECT, and at least twice its distance from the interval's farther end
    SAME            |effect| and that distance are both smaller than MIN_EFFECT
    UNSTABLE        neither, or fewer rounds than MIN_SAMPLES
    It is not enough that the interval excludes 0: consecutive rounds are correlated, so the bootstrap interval of a few
    rounds is too narrow. A kernel was compared with itself, with noise of 0.1 to 2 % per round and a correlation of 0.3
    between rounds: the factor of two gave 1 wrong verdict in 1,000, up to 5 with all the looks that `measure` takes as
    rounds are added, and excluding 0 alone gave more than 20.
    Raises ValueError when the numbers of samples differ.
    """
    if len(parent) != len(child):
        raise ValueError(f"{len(parent)} samples of the parent, {len(child)} of the child")
    ratios = np.asarray(child, dtype=float) / np.asarray(parent, dtype=float) - 1
    effect = float(np.median(ratios))
    low, high = median_interval(ratios, VERDICT_CONFIDENCE)
    reach = max(effect - low, high - effect)
    if len(ratios) < MIN_SAMPLES:
        verdict = "UNSTABLE"
    elif abs(effect) >= MIN_EFFECT and 2 * reach <= abs(effect):
        verdict = "FASTER" if effect < 0 else "SLOWER"
    elif abs(effect) < MIN_EFFECT and reach < MIN_EFFECT:
        verdict = "SAME"
    else:
        verdict = "UNSTABLE"
    return Comparison(effect, low, high, verdict)


def implausible(bytes_read: float, seconds: float, ceiling: float, cached: float = 0) -> bool:
    """True if reading `bytes_read` bytes in `seconds` needs more bandwidth than `ceiling`, in bytes per second.

    cached: size in bytes of the GPU's last-level cache. That many bytes may still be cached from the step before.
    """
    return max(0.0, bytes_read - cached) > ceiling * seconds

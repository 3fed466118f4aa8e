"""Statistics of timings against cases worked by hand, exact probabilities, and samples with a known true median."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from experiments.timing.statistics import (
    MIN_EFFECT,
    MIN_SAMPLES,
    SHOWN_CONFIDENCE,
    compare,
    estimate,
    implausible,
    median_interval,
)

pytestmark = pytest.mark.covers

PAIRS = 50


def timings(rng: np.random.Generator, rounds: int, spread: float) -> np.ndarray:
    """Seconds of rounds as on a GPU: skewed noise, correlated over a few rounds, and a few outliers upwards."""
    noise = np.zeros(rounds)
    for i in range(rounds):
        noise[i] = (0.3 * noise[i - 1] if i else 0) + rng.normal() * spread
    outliers = (rng.random(rounds) < 0.05) * rng.exponential(0.05, rounds)
    return 1e-3 * np.exp(noise + outliers)


def test_median_and_interval_of_equal_samples():
    one = estimate([2.0] * 9)
    assert (one.median, one.low, one.high, one.half_width) == (2.0, 2.0, 2.0, 0.0)
    assert estimate([1.0, 9.0, 2.0]).median == 2.0
    with pytest.raises(ValueError, match="no samples"):
        estimate([])


def test_the_interval_lies_within_the_samples_and_is_the_same_again(seed):
    samples = np.random.default_rng(seed).normal(size=40)
    low, high = median_interval(samples, SHOWN_CONFIDENCE)
    assert samples.min() <= low <= np.median(samples) <= high <= samples.max(), seed
    assert (low, high) == median_interval(samples, SHOWN_CONFIDENCE)


def test_the_interval_covers_the_true_median_about_as_often_as_its_confidence(seed):
    rng = np.random.default_rng(seed)
    tries = 400
    truth = math.log(2)  # median of the exponential distribution
    hits = 0
    for _ in range(tries):
        low, high = median_interval(rng.exponential(size=30), SHOWN_CONFIDENCE)
        hits += low <= truth <= high
    # Six standard deviations of the binomial below; the bootstrap is known to cover a few percent less than nominal.
    lowest = SHOWN_CONFIDENCE - 0.03 - 6 * math.sqrt(0.05 * 0.95 / tries)
    assert lowest < hits / tries < 1, (hits, seed)  # an interval that always covers is too wide


def test_half_width_is_relative():
    samples = [1.0] * 50 + [3.0] * 50
    figure = estimate(samples)
    assert figure.median == 2.0
    assert (figure.low, figure.high) == (1.0, 3.0)
    assert figure.half_width == 0.5


def test_smallest_number_of_samples():
    assert MIN_SAMPLES == 8, "2 * 0.5**8 is 0.0078, and 1 - 0.99 is less than 2 * 0.5**7"


def test_too_few_rounds_are_unstable():
    few = MIN_SAMPLES - 1
    assert compare([1.0] * few, [2.0] * few).verdict == "UNSTABLE"
    assert compare([1.0] * (few + 1), [2.0] * (few + 1)).verdict == "SLOWER"
    with pytest.raises(ValueError, match="3 samples of the parent, 2"):
        compare([1.0] * 3, [1.0] * 2)


@pytest.mark.parametrize("spread", [0.001, 0.005, 0.02])
@pytest.mark.parametrize("rounds", [12, 40])
def test_a_kernel_against_itself_is_not_faster_or_slower(spread, rounds, seed):
    rng = np.random.default_rng(seed)
    verdicts = Counter(
        compare(timings(rng, rounds, spread), timings(rng, rounds, spread)).verdict for _ in range(PAIRS)
    )
    wrong = verdicts["FASTER"] + verdicts["SLOWER"]
    assert wrong <= 2, (verdicts, seed)
    if spread == 0.001 and rounds == 40:
        assert verdicts["SAME"] >= 48, (verdicts, seed)
    if spread == 0.02:
        assert verdicts["SAME"] <= 2, (verdicts, seed)  # too noisy to claim equality either


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, None), (1.1, "SLOWER"), (0.9, "FASTER")])
def test_recorded_timings_of_one_product_against_itself(factor, verdict):
    """Real timings with the noise of a real machine: 50 pairs, recorded by tests/samples/record_pairs.py."""
    recorded = json.loads((Path(__file__).parent / "samples" / "pairs.json").read_text())["pairs"]
    assert len(recorded) == PAIRS
    verdicts = Counter(compare(first, [factor * time for time in second]).verdict for first, second in recorded)
    if verdict is None:
        assert verdicts["FASTER"] + verdicts["SLOWER"] <= 2, verdicts
    else:
        assert verdicts[verdict] >= 48, verdicts


@pytest.mark.parametrize(("factor", "verdict"), [(0.97, "FASTER"), (1.03, "SLOWER")])
def test_a_true_difference_is_found(factor, verdict, seed):
    rng = np.random.default_rng(seed)
    found = Counter(compare(timings(rng, 40, 0.004), factor * timings(rng, 40, 0.004)).verdict for _ in range(PAIRS))
    assert found[verdict] == PAIRS, (found, seed)
    one = compare(timings(rng, 40, 0.001), factor * timings(rng, 40, 0.001))
    assert one.low <= factor - 1 <= one.high or abs(one.effect - (factor - 1)) < 0.002, (one, seed)


def test_a_difference_below_min_effect_is_same(seed):
    rng = np.random.default_rng(seed)
    parent = timings(rng, 200, 0.0002)
    one = compare(parent, parent * (1 + MIN_EFFECT / 2))
    assert one.low > 0
    assert one.verdict == "SAME", (one, seed)


@pytest.mark.parametrize(("reach", "verdict"), [(0.009, "SLOWER"), (0.011, "UNSTABLE")])
def test_an_effect_is_at_least_twice_its_uncertainty(reach, verdict):
    """Nine of 20 rounds are `reach` below an effect of 2 % and nine above: the interval ends there, far from 0."""
    one = compare([1.0] * 20, [1.02 - reach] * 9 + [1.02] * 2 + [1.02 + reach] * 9)
    assert (one.low, one.effect, one.high) == pytest.approx((0.02 - reach, 0.02, 0.02 + reach))
    assert one.verdict == verdict


def test_a_slowdown_of_both_kernels_cancels(seed):
    """A GPU that heats up and is 20 % slower at the end; the two kernels differ by 2 %."""
    rng = np.random.default_rng(seed)
    heat = np.linspace(1, 1.2, 40)
    parent, child = timings(rng, 40, 0.002) * heat, 0.98 * timings(rng, 40, 0.002) * heat
    assert compare(parent, child).verdict == "FASTER", seed
    assert estimate(parent).half_width > 0.01, seed


def test_a_time_that_needs_more_than_the_memory_bandwidth_is_implausible():
    # 1.192 GB at 4.57 TB/s take 260.8 us
    assert implausible(1.192e9, 260e-6, 4.57e12)
    assert not implausible(1.192e9, 261e-6, 4.57e12)
    # 50 MB of it may still be in L2: 249.9 us
    assert not implausible(1.192e9, 250e-6, 4.57e12, cached=50e6)
    assert implausible(1.192e9, 249e-6, 4.57e12, cached=50e6)
    # a model that fits into L2 is not bound by memory bandwidth
    assert not implausible(1e6, 1e-9, 4.57e12, cached=50e6)

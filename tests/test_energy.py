"""Energy from readings of power, with readings made by hand."""

import numpy as np
import pytest

from experiments.suite.energy import AVERAGE, PERIOD, average, joules, settled


def test_energy_is_the_area_below_power():
    assert joules([(0.0, 100.0), (1.0, 200.0), (3.0, 200.0)]) == 150 + 400


def test_power_before_a_load_is_in_no_sample_of_it():
    """A board of 100 W idle and 500 W at work, whose readings are averages over the last second."""
    times = np.arange(0, 5, PERIOD)
    samples = [(3 + at, 100 + 400 * min(1.0, at / AVERAGE)) for at in times]
    assert average(settled(samples)) == pytest.approx(500)
    assert average(samples) < 470

"""Energy from readings of power, with readings made by hand."""

import time
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import LabError
from experiments.suite import energy
from experiments.suite.energy import AVERAGE, PERIOD, average, joules, settled

pytestmark = pytest.mark.covers


def test_energy_is_the_area_below_power():
    assert joules([(0.0, 100.0), (1.0, 200.0), (3.0, 200.0)]) == 150 + 400


def test_power_before_a_load_is_in_no_sample_of_it():
    """A board of 100 W idle and 500 W at work; readings are averages over the last second."""
    times = np.arange(0, 5, PERIOD)
    samples = [(3 + at, 100 + 400 * min(1.0, at / AVERAGE)) for at in times]
    assert average(settled(samples)) == pytest.approx(500)
    assert average(samples) < 470


@pytest.mark.parametrize("drafts", [0, 1])
def test_the_rate_is_that_of_decoding_and_not_of_the_time_between_two_runs(drafts, monkeypatch):
    """A run of 4 tokens decodes for 2 ms, says the GPU, and takes the host 20 ms with what is queued around it.

    With a draft in each of its two steps, all of which are right, it has as many.
    """
    monkeypatch.setattr(energy, "SETTLE", 0.0)

    def timed(steps, repeats):
        time.sleep(0.02)
        return [0.002 / steps] * repeats

    layout = SimpleNamespace(tokens=1 + drafts, state={"position": SimpleNamespace(offset=1)})
    session = SimpleNamespace(reset=lambda ids, position: None, time=timed, layout=layout, state=lambda: [0, 4])
    model = SimpleNamespace(positions=8)
    readings = cycle([300.0, None])  # a driver may answer a query with an error
    gpu = SimpleNamespace(reading=lambda: {"power_w": next(readings)})
    found = energy._decode(model, session, gpu, 0.2)
    assert found["tok/s"] == pytest.approx(2000)
    assert found["J/token"] == pytest.approx(0.15)
    with pytest.raises(LabError, match="NVML reported no power while it was read; run it again"):
        energy._decode(model, session, SimpleNamespace(reading=lambda: {"power_w": None}), 0.1)

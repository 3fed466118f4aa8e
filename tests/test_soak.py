"""A short form of `make soak`: no false alarms, and malformed inputs refused in one line."""

import pytest

from experiments.malformed import faults
from experiments.soak import false_alarms


@pytest.mark.host
def test_sound_variants_raise_no_alarm(tmp_path, host_cache, seed):
    (tmp_path / "kernels").symlink_to(host_cache)
    assert false_alarms(20, tmp_path, seed) == []


def test_malformed_inputs_are_refused(tmp_path, seed):
    assert faults(40, tmp_path, seed) == []

"""Every fault that makes a kernel wait for ever ends as HUNG in time, and the report names the barrier."""

import re
import time
from contextlib import closing

import pytest

from common.devices.host import HostDevice
from common.errors import Hung
from common.layout import Layout
from common.weights import load
from experiments.mutants.mutation import MODEL, read_mutants, source_of
from experiments.mutants.trial import FLAGS

pytestmark = pytest.mark.host
HANGING = [mutant for mutant in read_mutants() if mutant.hangs]
TIMEOUT_S, PROMISED_S = 5.0, 5.0  # given to a launch, and how much later it is over at the latest
PLACE = re.compile(r"block \d+: \d+ threads .* (spin|barrier) at [\w/]+\.cuh?:\d+, stage \w+, layer \d")


def test_there_are_deadlocks_to_find():
    assert len(HANGING) >= 20


@pytest.mark.parametrize("mutant", HANGING, ids=lambda mutant: mutant.name)
def test_deadlock_ends_in_time_and_names_the_barrier(mutant, host_cache, seed):
    weights = load("synthetic", MODEL, None, host_cache / "weights", seed)[2].flat
    device = HostDevice(host_cache / "kernels", seed, workers=1, timeout=TIMEOUT_S, flags=FLAGS)
    with closing(device.session(device.compile(source_of(mutant)), Layout(MODEL), weights, blocks=8)) as session:
        session.reset([seed % MODEL.vocab], 0)
        began = time.monotonic()
        with pytest.raises(Hung) as hung:
            session.run(3)
    assert time.monotonic() - began < TIMEOUT_S + PROMISED_S
    assert PLACE.search(hung.value.report), hung.value.report

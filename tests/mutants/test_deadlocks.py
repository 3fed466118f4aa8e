"""Deadlocks: every fault that makes a kernel wait forever ends as HUNG, and the report says who waits where."""

import re
from contextlib import closing

import pytest
from sampled import sampled

from common.devices.ptx.device import PtxDevice
from common.errors import Hung
from common.model.weights import load
from tests.strength.mutants.mutation import read_mutants, source_of

pytestmark = pytest.mark.cpu
HANGING = [mutant for mutant in read_mutants() if mutant.hangs]
TIMEOUT_S = 30.0  # limit of a launch
WAITS = "polls|waits at a barrier of the block|waits for lanes"
PLACE = re.compile(rf"\d+ warps?(?:, the first)? in block \d+ with thread \d+, (?:{WAITS}) [\w/]+\.cuh?:\d+")


def test_there_are_at_least_20_deadlocks():
    assert len(HANGING) >= 20


@pytest.mark.parametrize("mutant", sampled(HANGING, 3), ids=lambda mutant: mutant.name)
def test_deadlock_ends_as_hung_and_the_barrier_is_reported(mutant, cpu_cache, seed):
    weights = load("synthetic", mutant.model, None, cpu_cache / "weights", seed)[2].flat
    device = PtxDevice(cpu_cache / "kernels", seed=seed, timeout=TIMEOUT_S)
    with closing(device.session(device.compile(source_of(mutant)), weights, blocks=8)) as session:
        session.reset([seed % mutant.model.vocab], 0)
        with pytest.raises(Hung) as hung:
            session.run(3)
    assert PLACE.search(hung.value.report), hung.value.report

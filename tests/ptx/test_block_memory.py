"""Shared memory of a block up to 48 KB is static, and dynamic above: no stack with the least rings has so much."""

from contextlib import closing
from dataclasses import replace

import pytest
from bare_kernel import bare_kernel

from common.compile.target import STATIC_SHARED
from common.devices.ptx.device import PtxDevice
from common.errors import Crashed
from common.model.weights import load
from tests.strength.mutants.mutation import edited, read_mutants

pytestmark = pytest.mark.cpu
BODY = "s.a[threadIdx.x] = 1; out[64 * blockIdx.x + threadIdx.x] = s.a[threadIdx.x];"
FAULTS = [mutant for mutant in read_mutants() if mutant.kind in ("BlockMemory", "SHARED_BYTES")]


@pytest.fixture
def run(cpu_cache, tiny, seed):
    """run(source): one step of `tiny` on two blocks."""

    def run_(source):
        weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat
        device = PtxDevice(cpu_cache, seed=seed)
        with closing(device.session(device.compile(source), weights, 2)) as session:
            session.reset([1], 0)
            session.run()

    return run_


def of_48_kb(model, words):
    """A kernel with so many words of shared memory more."""
    return bare_kernel(model, BODY, f"float a[{STATIC_SHARED // 4 - 1 + words}];")


@pytest.mark.parametrize("words", [0, 1])
def test_a_block_may_have_48_kb_and_more(run, tiny, words):
    run(of_48_kb(tiny, words))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_at_the_limit_is_found(fault, run, tiny):
    source = of_48_kb(tiny, fault.kind == "SHARED_BYTES")
    with pytest.raises(Crashed, match="outside shared memory"):
        run(replace(source, text=edited(source.text, fault)))

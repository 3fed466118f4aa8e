"""Refusals of the PTX device. That stacks pass with the race detector: test_matrix.py; faults: test_memory_order.py."""

import pytest
from composed import CATALOG, Composed

from common.devices.ptx.device import PtxDevice
from common.errors import LabError, Refused


@pytest.mark.cpu
def test_position_beyond_the_cache_is_refused(open_session, synthetic, baseline, seed):
    session = open_session(baseline, synthetic(baseline.model, seed))
    session.reset([1] * 63, 62)
    with pytest.raises(LabError, match="3 steps from position 62 on do not fit a cache of 64 positions"):
        session.run(3)


def test_without_nvrtc_the_device_cannot_be_opened(monkeypatch, tmp_path):
    def missing():
        raise LabError("NVRTC cannot be loaded", "install it")

    monkeypatch.setattr("common.devices.ptx.device.version", missing)
    with pytest.raises(LabError, match=r"^NVRTC cannot be loaded; install it$"):
        PtxDevice(tmp_path)


@pytest.mark.cpu
def test_a_stack_that_needs_a_newer_gpu_is_refused(cpu_cache, tiny):
    bulk = Composed((*CATALOG.variants["bulk_ring"].parent, "bulk_ring"), {"copies": "bulk"})
    with pytest.raises(Refused, match="needs sm_90 and the target is sm_86"):
        PtxDevice(cpu_cache, 86).compile(bulk.source(tiny))

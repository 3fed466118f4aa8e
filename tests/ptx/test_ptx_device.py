"""Stacks on the PTX device pass with the race detector; faults of the half that only CUDA compiles are found.

A run of the tests takes a part of both; `make soak` all stacks, and a fault in each function of that half.
"""

from contextlib import closing
from dataclasses import replace

import pytest
from composed import CATALOG, NAMED, VARIANTS, Composed
from sampled import sampled

from common.devices.ptx.device import PtxDevice
from common.errors import Crashed, LabError, Refused
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import scenarios

SMALLEST = {"slots": 2, "kb": 6, "window": 2, "chunk": 16}  # rings: each slot is used again and again
STACKS = {str(one): one for one in (*VARIANTS, *NAMED)}
STREAMING = next(one for one in NAMED if "tensor_rows" in one.names)
# (stack, text, wrong text, report)
FAULTS = (
    (STREAMING, "fence.proxy.async;", "// ", "no fence.proxy.async"),
    (STREAMING, "fence.acq_rel.gpu;", "// ", "nothing orders"),
    (STREAMING, "mbarrier.arrive.release.cta", "mbarrier.arrive.relaxed.cta", "nothing orders"),
    (STREAMING, "try_wait.parity.acquire.cta", "try_wait.parity.relaxed.cta", "nothing orders"),
    (Composed(("atomic_barrier",)), "st.release.gpu", "st.relaxed.gpu", "nothing orders"),
    (Composed(()), "block_barrier(); // orders the writes", "// ", "nothing orders"),
    (Composed(()), "block_barrier(); // orders thread 0", "// ", "nothing orders"),
    (Composed(()), "__shfl_xor_sync(0xffffffffu", "__shfl_xor_sync(0x7fffffffu", "member mask"),
)
DRAWN = sampled(FAULTS, 5)


def smallest(stack):
    """The stack with the smallest rings that its knobs allow."""
    known = {knob.name for name in stack.names for knob in CATALOG.variants[name].knobs}
    return Composed(stack.names, {**stack.given, **{name: SMALLEST[name] for name in SMALLEST if name in known}})


def verdict(source, cache, model, seed, arch=90, races=True):
    weights = load("synthetic", model, None, cache, seed)[2].flat
    device = PtxDevice(cache, arch, seed, races)
    with closing(device.session(device.compile(source), weights)) as session:
        return validate(
            session, weights, model, scenarios(model, seed, weights, quick=True, tokens=session.layout.tokens), seed
        )


@pytest.mark.cpu
@pytest.mark.parametrize("name", sampled(STACKS, 4))
def test_a_stack_passes_without_a_race(name, cpu_cache, tiny, seed):
    assert verdict(smallest(STACKS[name]).source(tiny), cpu_cache, tiny, seed).mismatch is None


@pytest.mark.cpu
@pytest.mark.parametrize(("stack", "text", "other", "report"), DRAWN, ids=[fault[1][:40] for fault in DRAWN])
def test_a_fault_is_found(stack, text, other, report, cpu_cache, tiny, seed):
    source = smallest(stack).source(tiny)
    assert text in source.text
    with pytest.raises(Crashed, match=report):
        verdict(replace(source, text=source.text.replace(text, other)), cpu_cache, tiny, seed)


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

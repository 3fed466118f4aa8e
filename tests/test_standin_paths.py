"""Ways through the CUDA path that a sound GPU does not take, on the stand-in."""

import dataclasses
import os
from contextlib import closing

import pytest
import torch
from composed import Composed
from standin import installed

from common.compile.source import build
from common.config.device_choice import find_gpu
from common.devices.cuda import CudaProgram
from common.errors import CompileError, Crashed, LabError, Mismatched, Refused
from common.model.weights import load
from common.validate.snapshot import Snapshot, bit_differences
from experiments.timing.bandwidth import Memory

pytestmark = [pytest.mark.cpu, pytest.mark.covers]
SHORT = {"timing.rounds": 8, "timing.max_rounds": 8, "timing.steps": 1, "timing.warmup": 1, "timing.tokens": 1}


@pytest.fixture
def fault(monkeypatch):
    return lambda given: monkeypatch.setenv("STANDIN_FAULT", given)


@pytest.fixture
def gpu(cpu_cache, monkeypatch):
    """A CudaDevice on a fresh stand-in."""
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    with installed():
        from common.devices.cuda import CudaDevice

        yield CudaDevice()


@pytest.fixture
def session(gpu, tiny, cpu_cache, seed):
    """session(source, blocks=3): its session; all have the same weights."""
    weights = load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    return lambda source, blocks=3: gpu.session(gpu.compile(source), weights, blocks)


@pytest.fixture
def lab(gpu, tmp_path, cpu_cache):
    from experiments import Lab

    keys = {"model": "tiny", "device": "cuda", "seed": 1, "blocks": 3, "archs": [], "cache": str(cpu_cache)}
    return Lab(
        *(f"{key}={value}" for key, value in SHORT.items()),
        "timing.positions=[1]",
        "validate=quick",
        results=str(tmp_path / "records.jsonl"),
        **keys,
    )


def test_a_source_for_a_newer_gpu_is_refused(gpu, tiny):
    with pytest.raises(Refused, match="baseline needs sm_100 and this GPU is sm_90"):
        gpu.compile(dataclasses.replace(build([], tiny), min_arch=100))


def test_a_text_that_nvrtc_refuses_is_a_compile_error_with_the_log(gpu, tiny):
    source = build([], tiny)
    broken = dataclasses.replace(source, text=source.text + "struct Unfinished {")
    with pytest.raises(CompileError, match=r"NVRTC failed: .*error: ") as refused:
        gpu.compile(broken)
    assert "expected a" in refused.value.report


def test_a_kernel_for_each_stage_leaves_the_same_bits(session, tiny, seed):
    stages = Composed(("graph",), {"how": "launches"}).source(tiny)
    with closing(session(build([], tiny))) as whole, closing(session(stages)) as staged:
        for each in (whole, staged):
            each.reset([seed % tiny.vocab], 0)
            each.run(2)
        assert list(bit_differences(Snapshot.of(staged), Snapshot.of(whole), "staged")) == []
        first, second = staged.time(1, 2)
        assert first == second > whole.time(1, 1)[0]  # two microseconds for each of its launches


@pytest.mark.parametrize("how", ["graph", "pdl"])
def test_a_graph_is_captured_once_and_leaves_the_same_bits(how, session, tiny, seed):
    graph = Composed(("graph",), {"how": how}).source(tiny)
    assert graph.launch == how
    with closing(session(build([], tiny))) as whole, closing(session(graph)) as captured:
        for each in (whole, captured):
            each.reset([seed % tiny.vocab], 0)
            each.run(2)
        first = captured._graph
        captured.run()
        assert captured._graph is first
        whole.run()
        assert list(bit_differences(Snapshot.of(captured), Snapshot.of(whole), "captured")) == []


def test_a_graph_whose_buffers_are_replaced_is_refused(session, tiny):
    from standin_gpu.errors import Misuse

    with closing(session(Composed(("graph",)).source(tiny))) as captured:
        captured.reset([1], 0)
        captured.run()
        captured._state = captured._at_start[1]
        with pytest.raises(Misuse, match=r"stage_embed writes memory that was freed at .*test_standin_paths.py"):
            captured.run()


def test_a_trap_is_a_crash_that_names_the_kernel_and_is_final(fault, session, tiny):
    fault("trap@2 variants/vec128.cu")
    trapped = session(Composed(("vec128",)).source(tiny))
    trapped.reset([1], 0)
    trapped.run()
    # A CUDA error is sticky: found by a wait of the runtime first, and then by the driver at every launch.
    for error in ("cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED"):
        with pytest.raises(Crashed, match=rf"vec128 failed on the GPU: {error}: .*; run it with device=ptx"):
            trapped.run()
    with pytest.raises(LabError, match=r"the GPU cannot be used: cudaErrorLaunchFailure.*; run again in a new process"):
        find_gpu()


def test_the_gpu_is_described_by_its_driver(gpu):
    from standin_gpu.device import NAME

    found = gpu.describe()
    assert (found["device"], found["gpu"], found["arch"], found["multiprocessors"]) == (
        "cuda",
        NAME.decode(),
        "sm_90",
        8,
    )
    assert found["compiler"].startswith("NVRTC 1")
    assert found["bus_id"] == gpu._device.pci_bus_id


def test_a_gpu_that_is_lost_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOST", str(tmp_path / "lost"))
    (tmp_path / "lost").touch()
    with installed():
        from common.devices.cuda import CudaDevice

        with pytest.raises(LabError, match=r"the GPU cannot be used: cudaErrorNoDevice.*; check nvidia-smi, or use"):
            CudaDevice()


def test_unless_refused_more_blocks_than_are_resident_are_fewer_or_trap(session, tiny, monkeypatch):
    monkeypatch.setattr(CudaProgram, "refuse_oversize", lambda *arguments: None)
    with closing(session(build([], tiny), 65)) as cooperative:
        cooperative.reset([1], 0)
        with pytest.warns(UserWarning, match=r"The grid size will be reduced from 65 to (8|16|24|32|40|48|56|64)\b"):
            cooperative.run()
    plain = session(Composed(("atomic_barrier",)).source(tiny), 65)
    plain.reset([1], 0)
    with pytest.raises(Crashed, match="atomic_barrier failed on the GPU: cudaErrorLaunchFailure"):
        plain.run()


def test_weights_that_do_not_fit_are_out_of_memory(gpu, tiny):
    program = gpu.compile(build([], tiny))
    with pytest.raises(MemoryError, match="Out of memory allocating 80,000,000 bytes"):
        gpu.session(program, torch.zeros(40_000_000, dtype=torch.bfloat16), 3)


def test_a_wrong_bit_is_a_mismatch(fault, lab):
    fault("wrong variants/vec128.cu")
    verdict = lab.stack("vec128").validate()
    assert not verdict.passed


def test_a_gpu_counts_nothing(lab):
    with pytest.raises(LabError, match=r"^device=cuda counts nothing; use device=ptx$"):
        lab.stack("baseline").counts()


def test_outputs_that_change_while_timing_are_a_mismatch(fault, lab):
    fault("wrong@45 variants/vec128.cu")
    stack = lab.stack("vec128")
    assert stack.validate().passed
    with pytest.raises(Mismatched, match=r"wrong where it is timed, .* embed \[0\] is .* \(timed launches differ from"):
        stack.measure()
    assert (stack.found.status, stack.found.latencies) == ("MISMATCH", ())


def test_a_probe_that_reads_something_else_is_a_crash(fault, gpu):
    from experiments.timing.bandwidth import read_ceiling

    fault("wrong read_all")
    with pytest.raises(Crashed, match="reading by 128-bit loads computed the xor"):
        read_ceiling()


def test_a_probe_has_the_memory_that_the_pool_keeps_of_others(gpu):
    import cupy

    assert len(cupy.empty(cupy.cuda.Device().mem_info[0], cupy.uint8)) > 1 << 25  # and freed
    assert Memory(1 << 24)._data.nbytes == 1 << 24


def test_energy_without_power_is_one_line(gpu, configured, monkeypatch, tmp_path, cpu_cache):
    from standin_gpu.libraries import FUNCTIONS

    from experiments.experiment import Experiment
    from experiments.suite.energy import ask
    from experiments.tables.progress import Quiet

    monkeypatch.delitem(FUNCTIONS, "nvmlDeviceGetPowerUsage")
    where = [f"results={tmp_path}/records.jsonl", f"cache={cpu_cache}"]
    config = configured("device=cuda", "experiment=energy", "model=tiny", "seed=1", *where)
    with pytest.raises(LabError, match="NVML reports no power of this GPU"):
        ask(Experiment(config, Quiet()))


@pytest.mark.parametrize("code", [9, 15], ids=["no driver", "lost"])
def test_a_gpu_that_nvml_does_not_have_is_none(gpu, monkeypatch, code):
    from standin_gpu.libraries import FUNCTIONS

    from common.devices.nvml import Gpu

    monkeypatch.setitem(FUNCTIONS, "nvmlDeviceGetHandleByPciBusId_v2", lambda *arguments: code)
    assert Gpu.current() is None
    monkeypatch.setitem(FUNCTIONS, "nvmlDeviceGetPowerUsage", lambda *arguments: code)
    assert Gpu(None).reading()["power_w"] is None


def test_the_stand_in_is_gone_afterwards(cpu_cache):
    before = dict(os.environ)
    with installed():
        import cupy

        assert "stand-in" in cupy.__doc__.lower()
    assert dict(os.environ) == before
    assert "standin_gpu" not in __import__("sys").modules

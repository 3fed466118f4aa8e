"""`python -m experiments.ptx device=cuda`, on the stand-in: the same yaml, arrays put back before each timed launch."""

import json
from pathlib import Path

import numpy as np
import pytest

from common.compile.nvrtc import compile_ptx

pytestmark = pytest.mark.cpu
ADDING = """extern "C" __global__ void k(const float *const *from, float *to) {
  extern __shared__ float s[];
  s[threadIdx.x] = from[0][threadIdx.x] + from[1][threadIdx.x];
  to[threadIdx.x] += s[threadIdx.x];
}
"""
YAML = """
block: 32
shared: 60000
arrays:
  - {name: a, type: f32, shape: 32, fill: arange}
arguments:
  - {name: from, type: u64, shape: 2, address_of: [a, a]}
  - {name: to, type: f32, shape: 32, fill: zeros, expect: to.npy}
"""


@pytest.fixture
def kernel(command, cpu_cache, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    Path("k.cu").write_text(ADDING)
    Path("k.yaml").write_text(YAML)
    np.save("to.npy", 2.0 * np.arange(32))


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_the_same_yaml_runs_there_and_is_timed(device, cupy, command, kernel, monkeypatch):
    monkeypatch.setattr(  # the stand-in executes no cubin
        "experiments.ptx.kernels.compile_cubin", lambda *given: compile_ptx(*given).encode()
    )
    code, out, err = command("k.cu", "k.yaml", f"device={device}", "json=true", "out=made")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["end"], found["counts"]) == ("finished", {})
    assert found["seconds"] > 0
    assert found["arrays"]["to"]["expect"]["right"], "the first launch's, though many are timed"
    assert np.array_equal(np.load("made/to.npy"), 2 * np.arange(32))


def test_ptx_a_sweep_and_what_fails_there(cupy, command, kernel):
    Path("k.ptx").write_text(compile_ptx(ADDING, "sm_90"))
    code, out, _ = command("k.ptx", "k.yaml", "device=cuda", "sweep={block:[16,32]}", "json=true")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [row["arrays"]["to"]["expect"]["right"] for row in rows] == [False, True]
    Path("k.ptx").write_text(compile_ptx("__global__ void k(float *x) { x[1 << 28] = 1; }", "sm_90"))
    given = "arguments=[{name:x,type:f32,shape:4}]"
    code, out, _ = command("k.ptx", given, "device=cuda", "sweep={block:[32,64]}")
    assert code == 1
    assert "row 1, block 32: device=ptx names the line" in out
    assert "row 2, block 64: the row before has ended the GPU's context" in out


def test_an_endless_kernel_ends_in_time(cupy, command, kernel):
    Path("k.ptx").write_text(compile_ptx("__global__ void k(int *x) { while (*(volatile int *)x == 0); }", "sm_90"))
    code, out, _ = command("k.ptx", "arguments=[{type:s32,shape:1,fill:zeros}]", "device=cuda", "timeout_s=0.1")
    assert code == 1
    assert "not finished in time" in out


def test_without_a_gpu_it_is_refused_in_one_line(command, kernel):
    code, _, err = command("k.cu", "k.yaml", "device=cuda")
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("or use device=ptx\n")

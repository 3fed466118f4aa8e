"""`python -m experiments.ptx`: kernels of a user's file, the arrays that they write, and every mistake in one line."""

import json
import os
import re

import numpy as np
import pytest

from common.cache import folder
from common.cache.files import cached
from common.devices.ptx.library import library
from experiments.ptx import launch, sweep
from experiments.ptx.__main__ import main

SAXPY = """__global__ void saxpy(int n, float a, const float *x, float *y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
struct Pair { int first, second; };
__global__ void pair(Pair p, unsigned short *out) { out[threadIdx.x] = p.second - p.first; }
"""
LAUNCH = """
kernel: saxpy
grid: 4
block: 64
arguments:
  - {type: s32, value: 250}
  - {type: f32, value: 2}
  - {name: x, type: f32, shape: 250, fill: arange}
  - {name: y, type: f32, shape: [10, 25], fill: y.npy}
"""
Y = np.linspace(-1, 1, 250, dtype=np.float32).reshape(10, 25)
PAIR = "arguments=[{type:s32,value:[3,5]},{name:out,type:u16,shape:40}]"
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {
.reg .pred %p<3>; .reg .u32 %r<3>; .reg .u64 %rd<3>;
ld.param.u64 %rd1, [p];
INSTRUCTION
ret; }
"""
POINTER = "arguments=[{name:a,type:u32,shape:4,fill:zeros}]"


@pytest.fixture(autouse=True)
def files(command, tmp_path):
    for name, text in (("saxpy.cu", SAXPY), ("launch.yaml", LAUNCH)):
        (tmp_path / name).write_text(text)
    np.save("y.npy", Y)


@pytest.mark.timeout(60)
def test_an_error_beside_the_command_ends_it():
    with pytest.raises(MemoryError):
        launch._aside(lambda: np.empty(1 << 60, np.uint8))


@pytest.mark.cpu
def test_the_cache_is_a_runs_and_keeps_below_its_limit(tmp_path, cpu_cache, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folder, "_limit", folder._limit)
    monkeypatch.setattr(sweep, "library", lambda cache, note: note(f"made in {cache}") or library(cpu_cache))
    old = tmp_path / "cache" / "old" / f"{1:064x}.cubin"
    cached(old, lambda: b"old")
    os.utime(old, (1, 1))
    assert main(["saxpy.cu", "launch.yaml", f"cache={tmp_path}/cache", "cache_limit_gb=1e-9"]) == 0
    assert not old.exists()
    assert capfd.readouterr().err == f"made in {tmp_path}/cache/kernels\n"
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"old", "kernels"}


@pytest.mark.cpu
def test_a_kernel_writes_arrays(command):
    code, out, err = command("saxpy.cu", "launch.yaml", "out=made")
    assert (code, err) == (0, "")
    assert re.match(r"_Z5saxpyifPKfPf, 4 blocks of 64 threads, sm_90, seed \d+: finished\n", out)
    assert np.array_equal(np.load("made/y.npy"), 2 * np.arange(250, dtype=np.float32).reshape(10, 25) + Y)
    code, out, _ = command("saxpy.cu", "launch.yaml", "grid=1", "json=true")
    shown = json.loads(out)
    assert (code, shown["end"], list(shown["arrays"])) == (0, "finished", ["y"])
    assert shown["arrays"]["y"]["min"] == -1
    assert shown["arrays"]["y"]["max"] == pytest.approx(2 * 63 + Y.flat[63])


@pytest.mark.cpu
def test_a_struct_and_an_array_that_nothing_has_written(command):
    code, out, _ = command("saxpy.cu", "kernel=pair", "json=true", PAIR)
    assert code == 0
    assert json.loads(out)["arrays"]["out"]["max"] == 0xFFFF  # the 8 elements without a thread
    assert json.loads(out)["arrays"]["out"]["first values"] == "2, 2, 2, 2"


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("st.global.u32 [%rd1+16], 1;", r"fault\noutside the buffers: .* after the end of the a buffer: k.ptx:7"),
        ("mov.u32 %r1, %tid.x; st.global.u32 [%rd1], %r1;", r"race\nnothing orders this write of a byte 0, which k"),
        ("bar.sync 1, 64;", r"deadlock: no thread can go on\n1 warp .* waits at a barrier of the block k.ptx:7"),
        ("membar.gl;\nagain: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra again;",
         r"deadlock: no thread can go on\n1 warp .* polls k.ptx:8"),
        ("again: bra again;", r"not finished in time\n.* k.ptx:7"),
        ("trap;", r"trap\nk.ptx:7,"),
    ],
)  # fmt: skip
def test_what_stops_a_kernel_is_said_with_its_line(command, tmp_path, instruction, said):
    (tmp_path / "k.ptx").write_text(PTX.replace("INSTRUCTION", instruction))
    code, out, _ = command("k.ptx", POINTER, "block=64" if "tid" in instruction else "block=32", "timeout_s=0.2")
    assert code == 1
    assert re.search(said, out)


@pytest.mark.cpu
def test_a_wait_that_gives_up_ends(command, tmp_path):
    loop = "again: ld.volatile.global.u32 %r1, [%rd1]; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9999; @%p1 bra again;"
    (tmp_path / "k.ptx").write_text(PTX.replace("INSTRUCTION", f"mov.u32 %r2, %tid.x; {loop}"))
    code, out, _ = command("k.ptx", POINTER, "block=64")
    assert (code, out.splitlines()[0].rpartition(": ")[2]) == (0, "finished")


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no file is given; python -m experiments.ptx FILE.cu LAUNCH.yaml"),
        (["none.cu"], "none.cu cannot be read: "),
        (["launch.yaml"], "launch.yaml is not a .cu file; "),
        (["wide.ptx", POINTER, "-DX=1"], "wide.ptx is not a .cu file; give CUDA text, or a .ptx without"),
        (["saxpy.cu", "list.yaml"], "list.yaml is no mapping"),
        (["saxpy.cu", "torn.yaml"], "torn.yaml cannot be read: "),
        (["saxpy.cu", "self.yaml"], "self.yaml cannot be read: maximum recursion depth exceeded"),
        (["saxpy.cu", "typo.yaml"], "unknown key in typo.yaml 'gird'; did you mean 'grid'?"),
        (["saxpy.cu", "device=ptx"], "unknown key 'device'; "),
        (["saxpy.cu", PAIR], "saxpy.cu has 2 kernels; give kernel=NAME: _Z5saxpy"),
        (["saxpy.cu", "kernel=sax", PAIR], "saxpy.cu has no kernels named sax; give kernel=NAME: "),
        (["open.cu"], "open.cu has no kernels; write a __global__ function; instantiate a template"),
        (["wrong.cu"], "wrong.cu does not compile for sm_90: wrong.cu(1): error: "),
        (["saxpy.cu", "arch=sm_10"], "unknown arch 'sm_10'; "),
        (["empty.ptx"], "empty.ptx: there is no .target, so this is no PTX"),
        (["frob.ptx", POINTER], "frob.ptx:7: the executor does not know frob.u32"),
        (["wgmma.ptx", POINTER], "wgmma.ptx:7: wgmma.fence.sync.aligned: matrices of a group of warps"),
        (["frob.ptx"], "k takes p (8 B), and arguments= gives nothing; "),
        (["frob.ptx", "arguments=[{type:s32,value:1}]"], "k takes p (8 B), and arguments= gives s32 (4 B); "),
        (["frob.ptx", "arguments=[3]"], "arguments=[3] is no list of mappings"),
        (["frob.ptx", "arguments=[{type:s32}]"], "arguments[0] has no value and no shape"),
        (["frob.ptx", "arguments=[{type:s32,value:1,shape:1}]"], "arguments[0] has value and shape; "),
        (["frob.ptx", "arguments=[{type:s8,value:128}]"], "arguments[0].value=128 does not fit in s8"),
        (["frob.ptx", "arguments=[{type:s8,value:1.5}]"], "arguments[0].value=1.5 does not fit in s8"),
        (["frob.ptx", "arguments=[{type:f16,value:[1,7e4]}]"], "arguments[0].value=[1, 70000.0] does not fit in f16"),
        (["frob.ptx", "arguments=[{type:int,value:1}]"], "unknown arguments[0].type 'int'"),
        (["frob.ptx", "arguments=[{type:s8,shape:0}]"], "arguments[0].shape=0 is not a whole number"),
        (["frob.ptx", "arguments=[{type:s8,shape:[99999,99999,99]}]"], "arguments[0].shape=[99999, 99999, 99] has "),
        (["frob.ptx", "arguments=[{type:s8,shape:1,fill:0}]"], "arguments[0].fill=0 is unknown; known: unwritten"),
        (["frob.ptx", "arguments=[{type:s8,fill:none.npy}]"], "arguments[0].fill: none.npy cannot be read"),
        (["frob.ptx", "arguments=[{type:s8,fill:y.npy}]"], "arguments[0].fill: y.npy holds float32 ["),
        (["frob.ptx", "arguments=[{type:f32,shape:4,fill:y.npy}]"], "arguments[0].fill: y.npy holds float32 ["),
        (["frob.ptx", "arguments=[{type:f32,shape:4,expect:y.npy}]"], "arguments[0].expect: y.npy holds float32 "),
        (["frob.ptx", "arguments=[{type:f32,shape:4,tolerance:1}]"], "arguments[0] has a tolerance without expect"),
        (["frob.ptx", "arguments=[{type:f32,shape:[10,25],expect:y.npy,tolerance:-1}]"], "arguments[0].tolerance=-1 "),
        (["frob.ptx", "arguments=[{type:u64,address_of:x}]"], "unknown array in address_of of argument 0 'x'"),
        (["frob.ptx", "arguments=[{type:u32,address_of:0}]"], "arguments[0].address_of=0 is no list of addresses"),
        (["frob.ptx", POINTER, "grid=[1,1,1,1]"], "grid=[1, 1, 1, 1] is beyond CUDA's limits"),
        (["wide.ptx", POINTER, "block=[32,64]"], "a block of 2048 threads, and the kernel allows 1024"),
        (["wide.ptx", POINTER, "block=2048"], "block=[2048] is beyond CUDA's limits; give at most [1024, 1024, 64]"),
        (["wide.ptx", POINTER, "shared=300000"], "300000 B of shared memory a block, and sm_90 allows 232448 B"),
        (["wide.ptx", POINTER, "grid=[65535,65535]"], "4294836225 blocks need "),
        (["wide.ptx", POINTER, "out=saxpy.cu"], "out=saxpy.cu cannot be written"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(command, tmp_path, words, said):
    files = {
        "list.yaml": "[1, 2]",
        "torn.yaml": "grid: [1",
        "self.yaml": "grid: &grid [*grid]",
        "typo.yaml": "gird: 1",
        "open.cu": "template <class T> __global__ void k(T *x) {}",
        "wrong.cu": "__global__ int k() {}",
        "empty.ptx": "",
        "frob.ptx": PTX.replace("INSTRUCTION", "frob.u32 %r1, %r1;"),
        "wgmma.ptx": PTX.replace("INSTRUCTION", "wgmma.fence.sync.aligned;"),
        "wide.ptx": PTX.replace("INSTRUCTION", "st.global.u32 [%rd1], 1;"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, _, err = command(*words)
    err = err.replace(f"{tmp_path}/", "")
    assert (code, err.count("\n"), len(err) < 1000) == (2, 1, True), err
    assert err.startswith(f"error: {said}")

"""Kernels of people's own: headers, macros, expected arrays, pointers in structs, tables of launches."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from common.compile.headers import cuda_folders
from experiments.ptx.expected import Expected, expected

pytestmark = pytest.mark.cpu
SCALED = """#include "factor.h"
extern "C" __global__ void k(const float *x, float *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * TIMES * x[i];
}
"""
SCALE = """
include: [headers]
define: {TIMES: 1}
block: 64
arguments:
  - {name: x, type: f32, shape: 64, fill: arange}
  - {name: y, type: f32, shape: 64}
  - {type: s32, value: 64}
"""
EIGHT = "{%r3, %r3, %r3, %r3, %r3, %r3, %r3, %r3}"
MATRICES = f""".target sm_90
.visible .entry k(.param .u64 a, .param .u64 d) {{ .reg .b32 %r<9>; .reg .b64 %rd<3>; .shared .align 16 .b8 tile[512];
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [d]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 16, %r2;
st.shared.v4.u32 [%r2], {{%r1, %r1, %r1, %r1}}; bar.warp.sync -1;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r3, %r4, %r5, %r6}}, [%r2];
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {EIGHT}, [%rd1];
wmma.load.b.sync.aligned.row.m16n16k16.global.f16 {EIGHT}, [%rd1];
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {EIGHT};
bar.warp.sync -1; red.global.add.v2.f32 [%rd2], {{%r3, %r3}}; ret; }}"""
LAYERS = """struct Layer { const float *w, *b; long long times; };
extern "C" __global__ void k(const Layer *layers, Layer last, const float *none, float *y) {
  const int i = threadIdx.x;
  float sum = none ? 1000 : last.w[i] + last.b[i];
  for (int l = 0; l < 2; l++) sum += layers[l].w[i] * layers[l].b[i] * layers[l].times;
  y[i] = sum;
}
"""
POINTED = """
arrays:
  - {name: one, type: f32, shape: 32, fill: arange}
  - {name: two, type: f32, shape: 32, fill: two.npy}
arguments:
  - {name: layers, type: u64, shape: [2, 3], address_of: [one, two, 1, two, two, 3]}
  - {type: u64, address_of: [one, two, 0]}
  - {type: u64, address_of: 0}
  - {name: y, type: f32, shape: 32, expect: y.npy, tolerance: 0}
"""


@pytest.fixture
def scaled(command, tmp_path):
    """The yaml is in a folder with what it names; the kernel is not."""
    (tmp_path / "own/headers").mkdir(parents=True)
    for name, text in (("k.cu", SCALED), ("own/k.yaml", SCALE), ("own/headers/factor.h", '#include "more.h"')):
        (tmp_path / name).write_text(text)
    (tmp_path / "own/headers/more.h").write_text("#define FACTOR 3\n")
    np.save("own/y.npy", 6.0 * np.arange(64))


def rows_of(out):
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("include", ['#include "more.h"\n', '#define NAME "more.h"\n#include NAME\n'])
def test_a_changed_header_is_compiled_anew(command, scaled, include):
    Path("own/headers/factor.h").write_text(include)
    for factor in (3, 5):
        Path("own/headers/more.h").write_text(f"#define FACTOR {factor}\n")
        code, _, err = command("k.cu", "own/k.yaml", "out=made")
        assert (code, err) == (0, "")
        assert np.array_equal(np.load("made/y.npy"), factor * np.arange(64))
    code, _, err = command("-DTIMES=FACTOR", "k.cu", "-DEMPTY", "own/k.yaml", "out=made")
    assert (code, err) == (0, "")
    assert np.array_equal(np.load("made/y.npy"), 25 * np.arange(64))


def test_a_line_of_a_header_is_reported_with_the_call_in_the_users_file(command):
    Path("deep.h").write_text("__device__ void deep(int *x) { *x = threadIdx.x; }")
    Path("near.h").write_text('#include "deep.h"\n__device__ void near(int *x) { deep(x); }')
    Path("k.cu").write_text('#include "near.h"\n__global__ void k(int *x) { near(x); }')
    assert "deep.h:1 (from k.cu:2), block 0" in command("k.cu", "arguments=[{type:s32,shape:1}]")[1]


def test_a_copy_counts_the_bytes_that_it_reads(command):
    copy = "__pipeline_memcpy_async(s + i, a + i, 16, 12); __pipeline_commit(); __pipeline_wait_prior(0);"
    kernel = f"__global__ void k(const int4 *a) {{ __shared__ int4 s[32]; const int i = threadIdx.x; {copy} }}"
    Path("k.cu").write_text(f"#include <cuda_pipeline.h>\n{kernel}")
    _, out, _ = command("k.cu", "json=true", "arguments=[{type:s32,shape:128}]")
    assert json.loads(out)["counts"]["loaded B"] == 32 * 4


def test_headers_of_cuda_are_found_beside_each_way_to_install_it(tmp_path):
    for library, folders in {
        "nvidia/cu13/lib": ["nvidia/cu13/include", "nvidia/cu13/include/cccl"],
        "nvidia/cuda_nvrtc/lib": ["nvidia/cuda_cccl/include", "nvidia/cuda_runtime/include"],
        "cuda-13.0/lib64": ["cuda-13.0/include"],
    }.items():
        root = tmp_path / library.partition("/lib")[0].replace("/", "-")
        for folder in (library, *folders):
            (root / folder).mkdir(parents=True)
        assert cuda_folders(root / library / "libnvrtc.so.13") == tuple(root / folder for folder in folders)


def test_headers_of_cuda_and_of_c_are_there(command):
    Path("k.cu").write_text(
        "#include <cuda_bf16.h>\n#include <stdio.h>\n#include <vector>\n#include <cstdint>\n#include <limits.h>\n"
        '#include "cuda_runtime.h"\n'
        'extern "C" __global__ void k(const float *x, float *y) {\n'
        "  auto i = std::uint32_t(threadIdx.x); static_assert(INT_MAX == 2147483647);\n"
        "  if constexpr (requires { 1 + 1; }) y[i] = __bfloat162float(__float2bfloat16(x[i])); }\n"  # C++20
    )
    given = "arguments=[{type:f32,shape:512,fill:arange},{name:y,type:f32,shape:512}]"
    code, _, err = command("k.cu", given, "block=512", "std=20", "out=made")
    assert (code, err) == (0, "")
    assert np.array_equal(np.load("made/y.npy"), torch.arange(512.0).bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('#include "none.h"\n__global__ void k() {}', 'cannot open source file "none.h"; give its folder: include: '),
        (
            "__global__ void k() {}\nint main() { k<<<1, 1>>>(); std::vector<int> a; }",
            "; NVRTC compiles code of the GPU only: put main and all other code of the host between #ifndef",
        ),
        (
            "__device__ int f(int n) { return n < 2 ? n : f(n - 1) * f(n - 2); }\n"
            "__global__ void k(double *x) { *x = f(*x); }",
            "k.cu:1: f calls itself: recursion is not executed",
        ),
        (
            '__global__ void k() { asm volatile("mbarrier.init.shared.b64 [%0], 0;" :: "r"(0)); }',
            "k.cu does not compile for sm_90: NVRTC ends by SIGSEGV; correct the PTX in its asm statements: an ",
        ),
    ],
)  # fmt: skip
def test_what_nvrtc_cannot_take_is_one_line_with_the_way_out(command, text, said):
    Path("k.cu").write_text(text)
    given = "arguments=[{type:f64,shape:1}]" if "double" in text else "arguments=[]"
    code, _, err = command("k.cu", given)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_arrays_are_reached_through_structs_of_pointers(command):
    two = (np.arange(32) % 7).astype(np.float32)
    np.save("two.npy", two)
    np.save("y.npy", np.arange(32) + two + np.arange(32) * two + 3 * two * two)
    Path("k.cu").write_text(LAYERS)
    Path("k.yaml").write_text(POINTED)
    code, out, err = command("k.cu", "k.yaml", "json=true")
    assert (code, err) == (0, ""), out
    assert list(json.loads(out)["arrays"]) == ["y"]


def test_a_sweep_is_a_table_with_a_verdict_for_each_row(command, scaled):
    sweep = "sweep={block:[32,[32,2]],define:{TIMES:[2,4]}}"
    expect = "arguments=[{type:f32,shape:64,fill:arange},{name:y,type:f32,shape:64,expect:y.npy},{type:s32,value:64}]"
    code, out, err = command("k.cu", "own/k.yaml", sweep, expect, "grid=2", "json=true")
    found = rows_of(out)
    assert (code, err) == (1, "")
    assert [row["row"] for row in found] == [
        {"block": block, "TIMES": times} for block in ("32", "32x2") for times in ("2", "4")
    ]
    assert [row["arrays"]["y"]["expect"]["right"] for row in found] == [True, False, True, False]
    assert found[1]["arrays"]["y"]["expect"] == {
        "right": False, "wrong": 63, "size": 64, "largest": 6 * 63.0, "at": [63], "found": 12 * 63.0,
        "wanted": 6 * 63.0,
    }  # fmt: skip
    assert [row["counts"]["stored B"] for row in found] == [256, 256, 512, 512], "rows of a block of two do it twice"
    code, out, _ = command("k.cu", "own/k.yaml", "sweep=[{block:64,define:{TIMES:2}}]", expect, "seed=7")
    assert "seed 7" in out.splitlines(), "repeats it where none was given"
    assert code == 0
    assert "finished" in out
    code, out, _ = command("k.cu", "own/k.yaml", "sweep={grid:[1,2],block:[2048,64]}", "out=made")
    assert code == 1
    assert "row 1, grid 1, block 2048: block=[2048] is beyond CUDA's limits" in out
    assert sorted(map(str, Path("made").rglob("*.npy"))) == ["made/2/y.npy", "made/4/y.npy"]
    for names in ("[1,2]", "[TIMES]"):
        code, _, err = command("k.cu", "own/k.yaml", f"sweep={{block:[32],define:{names}}}")
        assert (code, err.count("\n")) == (2, 1)
        assert "sweep is no mapping of lists" in err
    code, _, err = command("k.cu", "own/k.yaml", "sweep={define:{TIMES:[oops,none]}}")
    assert (code, err.count("\n")) == (2, 1), "a mistake that all rows share is one"


def test_files_of_out_are_those_of_arrays_that_were_stored(command):
    Path("k.cu").write_text(
        'extern "C" __global__ void k(int *same, int *read, int *no, int *add) {\n'
        "  same[threadIdx.x] = 0; if (read[threadIdx.x]) no[0] = 1; atomicAdd(add, 0); }"
    )
    arguments = [{"name": name, "type": "s32", "shape": 32, "fill": "zeros"} for name in ("same", "read", "no", "add")]
    Path("k.yaml").write_text(yaml.safe_dump({"arguments": arguments}))
    Path("made").mkdir()
    np.save("made/same.npy", np.ones(32, np.int32))
    code, out, _ = command("k.cu", "k.yaml", "out=made", "json=true")
    assert (code, list(json.loads(out)["arrays"])) == (0, ["same", "add"])
    assert {file.stem for file in Path("made").iterdir()} == {"same", "add"}
    assert not np.load("made/same.npy").any(), "the file of an earlier run"
    arguments[0]["expect"] = "made/same.npy"
    Path("k.yaml").write_text(yaml.safe_dump({"arguments": arguments}))
    code, _, err = command("k.cu", "k.yaml", "out=made")
    assert (code, "would overwrite same.npy, which is expected" in err) == (2, True)


def test_a_key_that_is_there_twice_is_refused_by_name(command):
    Path("k.yaml").write_text("grid: 2\ngrid: 4")
    code, _, err = command("k.cu", "k.yaml")
    assert (code, "duplicate key grid" in err) == (2, True)


@pytest.mark.parametrize(
    ("kind", "found", "wanted", "tolerance", "wrong", "largest", "at"),
    [
        ("f32", [1, 2], [1, 2.0001], None, 0, 1e-4, (1,)),
        ("f32", [1, 2], [1, 2.0007], None, 1, 7e-4, (1,)),
        ("f32", [1, 2], [1, 2.0001], 0, 1, 1e-4, (1,)),
        ("f32", [0, 1000], [0.001, 1001], {"relative": 0.002}, 1, 0.001, (0,)),
        ("f32", [0, 1000], [0.001, 1001], {"absolute": 0.002}, 1, 1, (1,)),
        ("f64", [np.nan, np.inf, 1], [np.nan, np.inf, 1], 0, 0, 0, (0,)),
        ("f64", [1, np.nan, 3], [1, 2, 3], 1e9, 1, np.inf, (1,)),
        ("f64", [1, 2, 3], [1, np.nan, np.inf], 1e9, 2, np.inf, (1,)),
        ("s64", [2**62, -(2**63)], [2**62 + 1, 2**63 - 1], None, 2, 2.0**64, (1,)),
        ("u8", [0, 255], [255, 255], None, 1, 255, (0,)),
        ("s32", [10, 20], [11, 20], 1, 0, 1, (0,)),
        ("bf16", [0x3F80, 0x4000], [1, 2.02], None, 0, 0.02, (1,)),
        ("bf16", [0x3F80, 0x4000], [1, 2.03], None, 1, 0.03, (1,)),
    ],
)
def test_arrays_are_compared(tmp_path, kind, found, wanted, tolerance, wrong, largest, at):
    integers = {"s64": np.int64, "u8": np.uint8, "s32": np.int32, "bf16": np.uint16}
    bits = np.array(found, integers.get(kind, {"f32": np.float32}.get(kind, np.float64)))
    np.save(tmp_path / "y.npy", np.array(wanted, np.float64 if "f" in kind else bits.dtype))
    one = expected(tmp_path / "y.npy", tolerance, kind, bits.shape, "a")
    assert isinstance(one, Expected)
    ended = one.compare(bits, kind)
    assert (ended.wrong, ended.at) == (wrong, at)
    assert ended.largest == pytest.approx(largest, rel=1e-3)


def test_bytes_of_matrices_and_vectors_are_counted(command):
    """wmma: 512 bytes of a and of b, 1024 of d; x4: 4 matrices of 128 bytes; v2: 8 bytes of each of 32 threads."""
    Path("k.ptx").write_text(MATRICES)
    given = "arguments=[{name:a,type:f16,shape:256,fill:zeros},{name:d,type:f32,shape:256}]"
    code, out, _ = command("k.ptx", given, "block=32", "json=true", "out=made")
    found = json.loads(out)
    assert (code, found["end"], Path("made/d.npy").exists()) == (0, "finished", True)
    counts = [found["counts"][name] for name in ("loaded B", "stored B", "shared B")]
    assert counts == [2 * 512, 1024 + 32 * 8, 512 + 512]

"""Instructions that CUDA's intrinsics and headers become, and what a stranger's C++ asks for, against other truths."""

from pathlib import Path

import numpy as np
import pytest
from test_opcodes import LOW32, f64, machine  # noqa: F401
from test_opcodes import test_an_opcode_is_what_the_isa_says as check

pytestmark = pytest.mark.cpu
SHARED = 0x00A10000D5030000 + 1024
ROWS = (
    ("dp4a.s32.s32 d, a, b, c", (0x01FF807F, 0x02FF8002, 5), 2 + 1 + 0x4000 + 254 + 5),  # 1, -1, -128, 127
    ("dp4a.u32.u32 d, a, b, c", (0xFFFFFFFF, 0xFFFFFFFF, LOW32), 4 * 255 * 255 - 1),
    ("dp4a.u32.s32 d, a, b, c", (0x000000FF, 0x000000FF, 0), LOW32 - 254),
    ("dp4a.s32.u32 d, a, b, c", (0x000000FF, 0x000000FF, 0), LOW32 - 254),
    ("sad.s32 d, a, b, c", (LOW32, 1, 7), 9),
    ("sad.u32 d, a, b, c", (LOW32, 1, 7), 5),  # wraps around
    ("fns.b32 %r6, 0x90, %r3, 2", (3,), 7),
    ("fns.b32 %r6, 0x90, %r3, -1", (6,), 4),
    ("fns.b32 %r6, 0x90, %r3, 0", (4,), 4),
    ("fns.b32 %r6, 0x90, %r3, 0", (5,), LOW32),
    ("fns.b32 %r6, 0x90, %r3, 3", (0,), LOW32),
    ("bmsk.clamp.b32 d, a, b", (4, 8), 0xFF0),
    ("bmsk.clamp.b32 d, a, b", (4, 99), LOW32 - 15),
    ("bmsk.clamp.b32 d, a, b", (32, 1), 0),
    ("cvt.rna.tf32.f32 d, a", (0x3F801000,), 0x3F802000),  # a tie, away from zero
    ("cvt.rna.tf32.f32 d, a", (0xBF800FFF,), 0xBF800000),
    ("cvt.rna.tf32.f32 d, a", (0xFF800000,), 0xFF800000),
    ("rsqrt.approx.f64 d, a", (f64(0.25),), f64(2)),
    ("rsqrt.approx.ftz.f64 d, a", (f64(4) + LOW32,), f64(0.5)),  # of the upper word
    ("isspacep.shared %p6, %rd3", (SHARED,), 1),
    ("isspacep.global %p6, %rd3", (SHARED,), 0),
    ("isspacep.local %p6, %rd3", (SHARED,), 0),
    ("isspacep.global %p6, %rd3", (0x7F0012345678,), 1),
)  # fmt: skip
KERNEL = """#include <cfloat>
#include <climits>
#include <new>
__constant__ float known[3] = {-INFINITY, NAN, M_PI};
struct Lists { const float *of[4]; int more; char end; };
extern "C" __global__ void k(const __grid_constant__ Lists lists, Lists copy, float *out) {
  const int i = threadIdx.x, at = i % 4;
  unsigned processor;
  asm("mov.u32 %0, %%smid;" : "=r"(processor));
  copy.of[(at + 1) % 4] = nullptr;
  const bool right = known[0] < -FLT_MAX && known[1] != known[1] && known[2] * INT_MAX > 6e9f;
  out[32 * blockIdx.x + i] = right ? lists.of[at][i] + copy.of[at][0] + copy.more + processor : 0;
}"""


@pytest.mark.parametrize(("instruction", "given", "result"), ROWS, ids=[f"{row[0]} {row[2]:x}" for row in ROWS])
def test_an_opcode_is_what_the_isa_says(machine, instruction, given, result):  # noqa: F811
    check(machine, instruction, given, result)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_structs_by_value_are_indexed_at_run_time(command, arch):
    Path("k.cu").write_text(KERNEL)
    arrays = ",".join(f"{{name:x{n},type:f32,shape:32,fill:arange}}" for n in range(4))
    given = "{type:u64,address_of:[x0,x1,x2,x3,5]}"
    code, _, err = command(
        "k.cu", f"arch={arch}", "grid=2", "block=32", "out=made",
        f"arguments=[{given},{given},{{name:y,type:f32,shape:64}}]", f"arrays=[{arrays}]",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert np.load("made/y.npy").tolist() == [*range(5, 37), *range(6, 38)]

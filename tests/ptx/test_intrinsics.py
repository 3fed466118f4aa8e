"""Instructions that CUDA's intrinsics and headers become, and what a stranger's C++ asks for, against other truths."""

from bisect import bisect
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_opcodes import LOW32, NAN, f32, f64, machine, run  # noqa: F401
from test_opcodes import test_an_opcode_is_what_the_isa_says as check

from common.devices.ptx.report import FINISHED
from common.errors import CompileError

pytestmark = pytest.mark.cpu
SHARED = 0x00A10000D5030000 + 1024
ROWS = (
    ("dp4a.s32.s32 d, a, b, c", (0x01FF807F, 0x02FF8002, 5), 2 + 1 + 0x4000 + 254 + 5),  # 1, -1, -128, 127
    ("dp4a.u32.u32 d, a, b, c", (0xFFFFFFFF, 0xFFFFFFFF, LOW32), 4 * 255 * 255 - 1),
    ("dp4a.u32.s32 d, a, b, c", (0x000000FF, 0x000000FF, 0), LOW32 - 254),
    ("dp4a.s32.u32 d, a, b, c", (0x000000FF, 0x000000FF, 0), LOW32 - 254),
    ("dp2a.lo.s32.s32 d, a, b, c", (0x00028000, 0x7F7F0380, 5), 0x8000 * 128 + 6 + 5),  # 2, -32768; 3, -128
    ("dp2a.hi.u32.s32 d, a, b, c", (0xFFFF0001, 0xFF020000, 0), 2 - 0xFFFF + LOW32 + 1),
    ("dp2a.lo.u32.u32 d, a, b, c", (0xFFFFFFFF, 0x0000FFFF, LOW32), 2 * 0xFFFF * 255 - 1),
    ("add.cc.u32 %r6, %r3, %r4; addc.u32 %r6, %r5, 7", (LOW32, 1, 2), 10),
    ("add.cc.u32 %r6, %r3, %r4; addc.u32 %r6, %r5, 7", (LOW32, 0, 2), 9),
    ("sub.cc.u64 %rd6, %rd3, %rd4; subc.cc.s64 %rd6, %rd5, %rd5; subc.u64 %rd6, %rd3, 0", (1, 2, 5), 0),
    ("mad.lo.cc.u32 %r6, %r3, %r4, %r5; madc.hi.u32 %r6, %r3, %r4, 0", (LOW32, LOW32, LOW32), LOW32),
    ("mad.hi.cc.s32 %r6, %r3, %r4, %r5; addc.u32 %r6, 0, 0", (LOW32, 1, 1), 1),  # the upper half of -1 and 1
    ("add.u16x2 %r6, %r3, %r4", (0x0001FFFF, 0x00020001), 0x00030000),  # without a carry
    ("min.s16x2 %r6, %r3, %r4", (0xFFFF0001, 0x0000FFFE), 0xFFFFFFFE),
    ("min.u16x2 %r6, %r3, %r4", (0xFFFF0001, 0x0000FFFE), 0x00000001),
    ("max.u16x2 %r6, %r3, %r4", (0xFFFF0001, 0x0000FFFE), 0xFFFFFFFE),
    ("max.s16x2.relu %r6, %r3, %r4", (0x80000001, 0xFFFF0002), 0x00000002),  # as NVRTC writes it
    ("min.relu.s16x2 %r6, %r3, %r4", (0x80000003, 0x00050002), 0x00000002),
    ("max.relu.s32 %r6, %r3, %r4", (LOW32, LOW32 - 1), 0),
    ("min.s32.relu %r6, %r3, %r4", (5, 7), 5),
    ("set.lt.f32.f32 d, a, b", (1, 2), f32(1)),  # subnormal numbers
    ("sad.s32 d, a, b, c", (LOW32, 1, 7), 9),
    ("sad.u32 d, a, b, c", (LOW32, 1, 7), 5),  # wraps around
    ("vabsdiff4.u32.u32.u32 %r6, %r3, %r4, %r5", (0xFF000510, 0x00FF0320, 9), 0xFFFF0210),
    ("vabsdiff2.u32.u32.u32 %r6, %r3, %r4, %r5", (0xFF000510, 0x00FF0320, 9), 0xFE0101F0),
    ("vabsdiff4.u32.u32.u32.add %r6, %r3, %r4, %r5", (0xFF000510, 0x00FF0320, 9), 255 + 255 + 2 + 16 + 9),
    ("vabsdiff2.u32.u32.u32.add %r6, %r3, %r4, %r5", (0xFF000510, 0x00FF0320, LOW32), 0xFE01 + 0x1F0 - 1),
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
    ("rsqrt.approx.f64 d, a", (f64(2.0**-1060),), f64(2.0**530)),  # a subnormal number
    ("rsqrt.approx.ftz.f64 d, a", (f64(4) + LOW32,), f64(0.5)),  # takes the upper word only
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


FP8 = {"e4m3x2": (3, -6, 0x7E), "e5m2x2": (2, -14, 0x7B)}  # bits of the fraction, least exponent, largest number
EACH = "mov.u32 %r2, %ctaid.x; mad.lo.u32 %r2, %r2, 1024, %r1; mul.wide.u32 %rd2, %r2, 8; add.s64 %rd2, %rd1, %rd2; "


def fp8_numbers(kind):
    """Numbers from zero to the largest, by their words."""
    bits, least, most = FP8[kind]
    fields = (divmod(word, 1 << bits) for word in range(most + 1))
    scale = Fraction(2) ** (least - bits)
    return [scale * (part + (exponent > 0) * 2**bits) * 2 ** max(exponent - 1, 0) for exponent, part in fields]


def nearest_fp8(x, numbers, relu):
    """By exact distances, ties to the even word, infinity to the largest number; a NaN is 0x7f."""
    if x != x:
        return 0x7F
    size = Fraction(min(abs(float(x)), 1e6))
    at = bisect(numbers, size)
    near = range(max(at - 1, 0), min(at + 1, len(numbers)))
    found = min(near, key=lambda word: (abs(numbers[word] - size), word % 2))
    return found | 128 * bool(np.signbit(x)) if x > 0 or not relu else 0


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", FP8)
def test_fp8_is_the_nearest_number(machine, kind, relu, seed):  # noqa: F811
    """All halves, and fp32 at each number, each middle and their neighbors; two NaNs of e5m2 count as one."""
    numbers = fp8_numbers(kind)
    canonical = np.array([0x7F if kind == "e5m2x2" and byte & 0x7F > 0x7C else byte for byte in range(256)])

    def converted(source, given):
        words = np.zeros((len(given), 2), np.uint32)
        words[:, : given.shape[1]] = given
        cvt = f"cvt.rn.satfinite{relu}.{kind}.{source} %rs1, {'%r3, %r4' if source == 'f32' else '%r3'};"
        body = f"{EACH} ld.global.v2.u32 {{%r3, %r4}}, [%rd2]; {cvt} st.global.u16 [%rd2], %rs1;"
        memory = np.ctypeslib.as_ctypes(words.reshape(-1))
        assert run(machine, body, memory, threads=1024, blocks=len(given) // 1024).status == FINISHED
        pairs = words[:, 0] & 0xFFFF
        return canonical[np.stack((pairs >> 8, pairs & 255), 1)].tolist()

    halves = np.arange(1 << 16, dtype=np.uint32)
    upper = halves * 40503 % 65536
    with np.errstate(invalid="ignore"):
        given = halves.astype(np.uint16).view(np.float16).astype(float)
    truth = np.array([nearest_fp8(x, numbers, relu) for x in given])
    assert converted("f16x2", (upper << 16 | halves)[:, None]) == np.stack((truth[upper], truth), 1).tolist()
    middles = [(a + b) / 2 for a, b in pairwise(numbers)]
    near = np.array([*map(float, numbers + middles), 464, 465, 61440, 3e38, 2.0**-149, np.inf, np.nan], np.float32)
    near = np.concatenate((near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))))
    random = np.random.default_rng(seed).integers(0, 1 << 32, 2048 - 2 * len(near), np.uint32).view(np.float32)
    given = np.concatenate((near, -near, random))
    truth = [nearest_fp8(x, numbers, relu) for x in given.tolist()]
    bits = np.stack((given, np.roll(given, 1)), 1).view(np.uint32)
    assert converted("f32", bits) == np.stack((truth, np.roll(truth, 1)), 1).tolist()


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", FP8)
def test_each_pair_of_fp8_is_its_halves(machine, kind, relu):  # noqa: F811
    finite = np.array([*map(float, fp8_numbers(kind))], np.float16).view(np.uint16).tolist()
    sizes = np.array((finite + [0x7C00] * (kind == "e5m2x2") + [0x7FFF] * 3)[:128])  # infinity, and NaNs
    negative = np.where(sizes == 0x7FFF, 0x7FFF, 0 if relu else sizes | 0x8000)
    of = np.concatenate((sizes, negative))
    words = np.zeros(1 << 17, np.uint32)
    body = f"{EACH} cvt.u16.u32 %rs1, %r2; cvt.rn{relu}.f16x2.{kind} %r3, %rs1; st.global.u32 [%rd2], %r3;"
    assert run(machine, body, np.ctypeslib.as_ctypes(words), threads=1024, blocks=64).status == FINISHED
    assert words[::2].tolist() == (of[:, None] << 16 | of).ravel().tolist()


RELATIONS = ("eq", "ne", "le", "ge", "lt", "gt", "equ", "neu", "leu", "geu", "ltu", "gtu")
COMPARED = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define EACH(R) *to++ = __h##R(a, b); *to++ = pair(__h##R##2(x, y)); *to++ = __h##R##2_mask(x, y);
__device__ unsigned pair(T2 of) { return unsigned(float(of.x)) + 2 * unsigned(float(of.y)); }
extern "C" __global__ void k(const T *given, unsigned *out) {
  const T a = given[threadIdx.x], b = given[blockIdx.x];
  const T2 x{a, b}, y{b, a};
  unsigned *to = out + 38 * (blockDim.x * blockIdx.x + threadIdx.x);
  ALL
  *to++ = __hisnan(a), *to++ = pair(__hisnan2(x));
}""".replace("ALL", " ".join(f"EACH({name})" for name in RELATIONS))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kind", ["__nv_bfloat16", "__half"])
def test_comparisons_of_16_bits_are_those_of_numpy(command, arch, kind):
    words = np.array([0, 1, 2, 0x3C00, 0x3F80, 0x7BFF, 0x7C00, 0x7F80, 0x7FFF, 0x7E01], np.uint16)
    words = np.concatenate((words, words | 0x8000))
    np.save("words.npy", words)
    Path("k.cu").write_text(COMPARED)
    code, _, err = command(
        "k.cu", f"arch={arch}", "grid=20", "block=20", "out=made", f"define={{T: {kind}, T2: {kind}2}}",
        "arguments=[{name:x,type:u16,fill:words.npy},{name:y,type:u32,shape:15200}]",
    )  # fmt: skip
    assert (code, err) == (0, "")
    x = words.view(np.float16).astype(float) if kind == "__half" else (words.astype(np.uint32) << 16).view(np.float32)
    a, b = np.broadcast_arrays(x, x[:, None])
    one, other = ({"eq": p == q, "ne": (p < q) | (p > q), "le": p <= q, "ge": p >= q, "lt": p < q, "gt": p > q,
                   "": np.isnan(p) | np.isnan(q)} for p, q in ((a, b), (b, a)))  # fmt: skip
    columns = []
    for name in RELATIONS:
        p, q = (each[name[:2]] | (each[""] & (len(name) == 3)) for each in (one, other))
        columns += [p * 1, p + 2 * q, 0xFFFF * p + 0xFFFF0000 * q]
    columns += [np.isnan(a) * 1, np.isnan(a) + 2 * np.isnan(b)]
    assert np.array_equal(np.load("made/y.npy").reshape(20, 20, 38), np.stack(columns, 2))


CALLED = """__device__ float f(float x) { return x + 1; }
__device__ float g(float x) { return x * 2; }
__device__ float (*const table[2])(float) = {f, g};
extern "C" __global__ void k(float *out, int n) { out[0] = (CHOSEN)(out[1]); }"""


@pytest.mark.parametrize(
    ("chosen", "said"), [("n ? f : g", "the address of the function _Z1"), ("table[n]", "a call of what %rd")]
)
def test_a_call_through_a_pointer_is_refused(command, chosen, said):
    Path("k.cu").write_text(CALLED.replace("CHOSEN", chosen))
    _, _, err = command("k.cu", "grid=1", "block=1", "arguments=[{name:x,type:f32,shape:2},{type:s32,value:1}]")
    assert f"k.cu:4: {said}" in err
    assert "calls through pointers are not executed; call the function by its name" in err


@pytest.mark.parametrize("name", ["sub.s16x2", "mul.lo.u16x2", "max.relu.u16x2", "set.lt.s32.f32"])
def test_what_is_not_known_is_no_other_operation(machine, name):  # noqa: F811
    with pytest.raises(CompileError, match="does not know"):
        run(machine, f"{name} %r2, %r3, %r4;", np.ctypeslib.as_ctypes(np.zeros(4, np.uint32)))

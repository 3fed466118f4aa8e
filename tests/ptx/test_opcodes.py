"""Opcodes of the PTX device against examples worked out by hand from the ISA: (instruction, operands, result)."""

import ctypes
import math
import re
import struct

import pytest

from common.devices.ptx.library import library
from common.devices.ptx.program import Buffer, Machine, Options, PtxProgram
from common.devices.ptx.report import FAULTED, FINISHED
from common.devices.ptx.text import parse
from common.errors import CompileError

NAN = 0x7FFFFFFF  # the one NaN that f32 instructions make
INFINITY = 0x7F800000
LOW32, LOW64 = (1 << 32) - 1, (1 << 64) - 1


def f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


# `d` is the result, a, b and c are the operands, of the type in the instruction's name. Or their registers: 6 is the
# result, 3 to 5 are the operands.
ROWS = (
    ("add.s32 d, a, b", (0xFFFFFFFF, 2), 1),
    ("sub.s32 d, a, b", (1, 2), 0xFFFFFFFF),
    ("mul.lo.s32 d, a, b", (0x10001, 0x10001), 0x20001),
    ("mul.hi.s32 d, a, b", (0xFFFFFFFF, 2), 0xFFFFFFFF),
    ("mul.hi.u32 d, a, b", (0xFFFFFFFF, 2), 1),
    ("mad.lo.s32 d, a, b, c", (3, 5, 0xFFFFFFFF), 14),
    ("div.s32 d, a, b", (0xFFFFFFF9, 2), 0xFFFFFFFD),  # -7 / 2 = -3
    ("rem.s32 d, a, b", (0xFFFFFFF9, 2), 0xFFFFFFFF),
    ("div.u32 d, a, b", (0xFFFFFFF9, 2), 0x7FFFFFFC),
    ("min.s32 d, a, b", (0xFFFFFFFF, 1), 0xFFFFFFFF),
    ("min.u32 d, a, b", (0xFFFFFFFF, 1), 1),
    ("shl.b32 d, a, b", (1, 32), 0),  # an amount beyond the width is clamped
    ("shr.u32 d, a, b", (0x80000000, 31), 1),
    ("shr.s32 d, a, b", (0x80000000, 40), 0xFFFFFFFF),
    ("shr.b32 d, a, b", (0x80000000, 31), 1),
    ("shf.l.wrap.b32 d, a, b, c", (0x80000001, 0x2, 33), 5),
    ("prmt.b32 d, a, b, c", (0x33221100, 0x77665544, 0x9630), 0x00663300),
    ("bfe.u32 d, a, b, c", (0xABCD1234, 8, 8), 0x12),
    ("bfe.s32 d, a, b, c", (0x0000F000, 12, 4), 0xFFFFFFFF),
    ("popc.b32 d, a", (0xF00F,), 8),
    ("clz.b32 d, a", (1,), 31),
    ("brev.b32 d, a", (1,), 0x80000000),
    ("not.b32 d, a", (0,), 0xFFFFFFFF),
    ("add.rn.ftz.f32 d, a, b", (f32(1.5), f32(2.25)), f32(3.75)),
    ("add.rn.ftz.f32 d, a, b", (INFINITY, INFINITY | 1 << 31), NAN),
    ("mul.rn.ftz.f32 d, a, b", (0x00800000, f32(0.5)), 0),  # the product is subnormal
    ("mul.rn.f32 d, a, b", (0x00800000, f32(0.5)), 0x00400000),
    ("add.rz.f32 d, a, b", (f32(1), 0x33FFFFFF), f32(1)),
    ("add.rp.f32 d, a, b", (f32(1), 0x33000000), 0x3F800001),
    ("fma.rn.ftz.f32 d, a, b, c", (0x3F800001, 0x3F800001, 0xBF800002), 0x28800000),  # 2^-46: rounded once
    ("max.ftz.f32 d, a, b", (NAN, f32(1)), f32(1)),
    ("max.ftz.f32 d, a, b", (0x80000000, 0), 0),  # -0 is below +0
    ("min.ftz.f32 d, a, b", (0, 0x80000000), 0x80000000),
    ("abs.ftz.f32 d, a", (f32(-2),), f32(2)),
    ("neg.ftz.f32 d, a", (1,), 0x80000000),
    ("rcp.rn.ftz.f32 d, a", (f32(4),), f32(0.25)),
    ("sqrt.rn.ftz.f32 d, a", (f32(9),), f32(3)),
    ("rcp.approx.ftz.f64 d, a", (f64(4),), f64(0.25)),
    ("rcp.approx.ftz.f64 d, a", (f64(1.5) + LOW32,), 0x3FE5555500000000),  # upper words only: 2 / 3
    ("rcp.approx.ftz.f64 d, a", (1 << 63 | 1 << 40,), f64(-math.inf)),  # a subnormal number is a zero
    ("rcp.approx.ftz.f64 d, a", (f64(-math.inf),), 1 << 63),
    ("ex2.approx.ftz.f32 d, a", (f32(-3),), f32(0.125)),
    ("cvt.rni.s32.f32 d, a", (f32(2.5),), 2),  # ties to even
    ("cvt.rzi.s32.f32 d, a", (f32(-2.9),), 0xFFFFFFFE),
    ("cvt.rzi.u32.f32 d, a", (f32(-1),), 0),
    ("cvt.rzi.s32.f32 d, a", (f32(3e9),), 0x7FFFFFFF),
    ("cvt.sat.f32.f32 d, a", (f32(7),), f32(1)),
    ("cvt.rn.f32.u32 d, a", (0xFFFFFFFF,), f32(2**32)),
    ("cvt.rn.bf16x2.f32 d, a, b", (f32(1), f32(-2)), 0x3F80C000),
    ("cvt.rn.f16x2.f32 d, a, b", (f32(65520), f32(2**-24)), 0x7C000001),
    ("add.rn.f64 d, a, b", (f64(1), f64(2**-53)), f64(1)),
    ("add.rn.f64 %rd6, %rd3, -0.25", (f64(1),), f64(0.75)),
    ("add.rn.f32 %r6, %r3, 1.5e1", (f32(1),), f32(16)),
    ("fma.rn.f64 d, a, b, c", (f64(3), f64(5), f64(-15)), 0),
    ("mul.hi.u64 d, a, b", (1 << 63, 6), 3),
    ("shr.s64 d, a, b", (1 << 63, 63), LOW64),
    ("shr.u64 d, a, b", (1 << 63, 63), 1),
    ("shl.b64 d, a, b", (3, 63), 1 << 63),
    ("add.u64 d, a, b", (LOW64, 2), 1),
    ("sub.s64 d, a, b", (1, 2), LOW64),
    ("mul.lo.s64 d, a, b", (LOW64, 3), LOW64 - 2),
    ("div.u64 d, a, b", (LOW64, 1 << 32), LOW32),
    ("max.u64 d, a, b", (LOW64, 1), LOW64),
    ("min.u64 d, a, b", (LOW64, 1), 1),
    ("max.s32 d, a, b", (LOW32, 1), 1),
    ("mul.wide.s32 %rd6, %r3, %r4", (LOW32, 5), LOW64 - 4),
    ("and.b32 d, a, b", (0xFF00FF00, 0x0FF00FF0), 0x0F000F00),
    ("or.b32 d, a, b", (0xF0, 0x0F), 0xFF),
    ("and.b64 d, a, b", (LOW64, 1 << 40), 1 << 40),
    ("or.b64 d, a, b", (1 << 40, 1), 1 << 40 | 1),
    ("not.b64 d, a", (LOW32,), LOW32 << 32),
    ("and.pred %p6, %p3, %p4", (1, 0), 0),
    ("or.pred %p6, %p3, %p4", (1, 0), 1),
    ("xor.pred %p6, %p3, %p4", (1, 1), 0),
    ("not.pred %p6, %p3", (0,), 1),
    ("mov.pred %p6, %p3", (1,), 1),
    ("mov.b32 d, a", (0xABCD1234,), 0xABCD1234),
    ("mov.b32 %r6, {%rs3, %rs4}", (0x1234, 0xABCD), 0xABCD1234),
    ("mov.b64 %rd6, {%r3, %r4}", (1, 2), 2 << 32 | 1),
    ("mov.u16 %rs6, %rs3", (0xABCD,), 0xABCD),
    ("mov.f32 d, a", (NAN,), NAN),
    ("mov.f64 %rd6, 0d3FF8000000000000", (), f64(1.5)),
    ("bfi.b32 %r6, %r3, %r4, 8, 4", (0xF5, 0xABCD1234), 0xABCD1534),
    ("bfi.b64 %rd6, %rd3, %rd4, 32, 32", (1, LOW64), 1 << 32 | LOW32),
    ("selp.b32 %r6, %r3, %r4, %p5", (3, 4, 1), 3),
    ("selp.u32 %r6, %r3, %r4, %p5", (3, 4, 0), 4),
    ("selp.f32 %r6, %r3, %r4, %p5", (f32(3), f32(4), 0), f32(4)),
    ("selp.u16 %rs6, %rs3, %rs4, %p5", (3, 4, 1), 3),
    ("selp.b64 %rd6, %rd3, %rd4, %p5", (3, 4, 1), 3),
    ("selp.f64 %rd6, %rd3, %rd4, %p5", (f64(3), f64(4), 0), f64(4)),
    ("setp.eq.b32 %p6, %r3, %r4", (LOW32, LOW32), 1),
    ("setp.eq.s32 %p6, %r3, %r4", (1, LOW32), 0),
    ("setp.ne.s32 %p6, %r3, %r4", (1, LOW32), 1),
    ("setp.lt.s32 %p6, %r3, %r4", (LOW32, 1), 1),
    ("setp.le.s32 %p6, %r3, %r4", (1, 1), 1),
    ("setp.gt.s32 %p6, %r3, %r4", (LOW32, 1), 0),
    ("setp.ge.s32 %p6, %r3, %r4", (1, 1), 1),
    ("setp.lt.u32 %p6, %r3, %r4", (LOW32, 1), 0),
    ("setp.gt.u32 %p6, %r3, %r4", (LOW32, 1), 1),
    ("setp.eq.s16 %p6, %rs3, %rs4", (0x18000, 0x8000), 1),
    ("setp.eq.b64 %p6, %rd3, %rd4", (1 << 32, 0), 0),
    ("setp.eq.s64 %p6, %rd3, %rd4", (LOW64, LOW64), 1),
    ("setp.ne.s64 %p6, %rd3, %rd4", (1 << 32, 0), 1),
    ("setp.lt.u64 %p6, %rd3, %rd4", (LOW64, 1), 0),
    ("setp.le.u64 %p6, %rd3, %rd4", (1, 1), 1),
    ("setp.gt.u64 %p6, %rd3, %rd4", (LOW64, 1), 1),
    ("setp.eq.ftz.f32 %p6, %r3, %r4", (1, 0), 1),  # the subnormal is zero
    ("setp.lt.ftz.f32 %p6, %r3, %r4", (f32(-1), f32(1)), 1),
    ("setp.gt.ftz.f32 %p6, %r3, %r4", (NAN, f32(1)), 0),
    ("setp.geu.ftz.f32 %p6, %r3, %r4", (NAN, f32(1)), 1),
    ("setp.neu.ftz.f32 %p6, %r3, %r4", (f32(0), 1 << 31), 0),  # -0 equals +0
    ("setp.lt.f64 %p6, %rd3, %rd4", (f64(-1), f64(1)), 1),
    ("setp.neu.f64 %p6, %rd3, %rd4", (f64(1), 0x7FF8000000000000), 1),
    ("sub.rn.ftz.f32 d, a, b", (f32(1), f32(2)), f32(-1)),
    ("div.rn.ftz.f32 d, a, b", (f32(1), f32(3)), 0x3EAAAAAB),
    ("fma.rm.ftz.f32 d, a, b, c", (f32(1), f32(1), 0xB3000000), 0x3F7FFFFF),  # 1 - 2^-25, downwards
    ("sub.rn.f64 d, a, b", (f64(1), f64(2)), f64(-1)),
    ("mul.rn.f64 d, a, b", (f64(3), f64(-0.5)), f64(-1.5)),
    ("div.rn.f64 d, a, b", (f64(1), f64(-8)), f64(-0.125)),
    ("neg.f64 d, a", (0,), 1 << 63),
    ("cvta.to.global.u64 d, a", (0x7F0012345678,), 0x7F0012345678),
    ("cvt.ftz.sat.f32.f32 %r6, %r3", (f32(-1),), 0),
    ("cvt.rn.f32.s64 %r6, %rd3", (LOW64,), f32(-1)),
    ("cvt.rn.f64.s32 %rd6, %r3", (LOW32,), f64(-1)),
    ("cvt.rn.ftz.f32.f64 %r6, %rd3", (f64(1 + 2**-24),), f32(1)),
    ("cvt.rni.f64.f64 %rd6, %rd3", (f64(2.5),), f64(2)),
    ("cvt.rzi.f64.f64 %rd6, %rd3", (f64(-2.9),), f64(-2)),
    ("cvt.rzi.s64.f64 %rd6, %rd3", (f64(-2.9),), LOW64 - 1),
    ("cvt.rzi.s32.f64 %r6, %rd3", (0x7FF8000000000000,), 1 << 31),  # a NaN; of f32 it is 0
    ("cvt.rn.sat.f32.s32 %r6, %r3", (7,), f32(1)),
    ("cvt.rni.ftz.s64.f32 %rd6, %r3", (f32(-1.5),), LOW64 - 1),
    ("cvt.s64.s32 %rd6, %r3", (LOW32,), LOW64),
    ("cvt.u64.u32 %rd6, %r3", (LOW32,), LOW32),
    ("cvt.u64.u32 %rd6, %ntid.x", (0,), 32),
    ("cvt.u32.u64 %r6, %rd3", (1 << 32 | 7,), 7),
    ("cvt.u16.u32 %rs6, %r3", (0x12345,), 0x2345),
    ("cvt.u32.u16 %r6, %rs3", (0xFFFF,), 0xFFFF),
    ("bfind.shiftamt.u32 d, a", (1,), 31),  # how far left the highest bit moves to the top
    ("bfind.shiftamt.s32 d, a", (LOW32 - 8,), 28),  # the bits that differ from the sign
    ("bfind.shiftamt.u64 %r6, %rd3", (0,), LOW32),
)  # fmt: skip
BITS = {"%rd": 64, "%rs": 16, "%r": 32}


@pytest.fixture(scope="session")
def machine(cpu_cache):
    return Machine(library(cpu_cache))


def run(machine, body, words, seed=0, threads=32, blocks=1, races=False, strict=True):
    """Run a kernel with the address of `words` (a ctypes array) in %rd1; how it ended."""
    text = f""".version 8.0\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u64 k_param_0) {{
    .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>;
    .shared .align 16 .b8 tile[2048];
    ld.param.u64 %rd1, [k_param_0]; mov.u32 %r1, %tid.x;
    {body}
    ret; }}"""
    start = ctypes.addressof(words)
    buffers = [Buffer("words", start, ctypes.sizeof(words))]
    options = Options(seed=seed, strict=strict, races=races, timeout=20)
    grid, block = (blocks, 1, 1), (threads, 1, 1)
    return PtxProgram(machine, text).kernel("k").launch(grid, block, struct.pack("<Q", start), buffers, 0, options)


@pytest.mark.cpu
@pytest.mark.parametrize(("instruction", "given", "result"), ROWS, ids=[f"{row[0]} {row[2]:x}" for row in ROWS])
def test_an_opcode_is_what_the_isa_says(machine, instruction, given, result):
    text, words = with_registers(instruction), (ctypes.c_uint64 * 4)(*given)
    body = ""
    for kind, number in sorted(set(re.findall(r"(%rd|%rs|%r|%p)([345])\b", text))):
        at = f"[%rd1+{8 * (int(number) - 3)}]"
        if kind == "%p":
            body += f"ld.global.u32 %r{number}, {at}; setp.ne.s32 %p{number}, %r{number}, 0;\n"
        else:
            body += f"ld.global.u{BITS[kind]} {kind}{number}, {at};\n"
    (kind,) = re.findall(r"^\S+ (%\w+?)6", text)
    body += f"{text};\n" + ("selp.u32 %r6, 1, 0, %p6; " if kind == "%p" else "")
    bits = BITS.get(kind, 32)
    words[3] = 0
    assert run(machine, f"{body}st.global.u{bits} [%rd1+24], {kind.replace('p', 'r')}6;", words).status == FINISHED
    assert words[3] == result


def with_registers(instruction):
    """The instruction with registers for letters; the amount of a shift has 32 bits."""
    name, _, rest = instruction.partition(" ")
    if "%" in rest:
        return instruction
    kind = "%rd" if name.endswith("64") else "%r"
    kinds = {"b": "%r" if name.startswith("sh") else kind}
    return f"{name} " + ", ".join(f"{kinds.get(one, kind)}{'abc'.find(one) + 3 if one in 'abc' else 6}"
                                  for one in rest.split(", "))  # fmt: skip


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("st.global.u32 [%rd1+4096], %r1;", "words"),
        ("ld.global.u32 %r2, [%rd1+2];", "misaligned"),
        ("ld.shared.u32 %r2, [%rd1];", "outside shared memory"),
        ("mov.u64 %rd2, tile; ld.u32 %r2, [%rd2];", "outside the buffers"),  # a missing cvta
        ("mov.u64 %rd2, tile; cvta.shared.u64 %rd3, %rd2; ld.shared.u32 %r2, [%rd3];", "outside shared memory"),
        ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0x7fffffff;", "member mask"),
        (
            "setp.lt.u32 %p1, %r1, 16; selp.u32 %r3, 65535, -65536, %p1; shfl.sync.bfly.b32 %r2, %r1, 16, 31, %r3;",
            "a shuffle from a lane that takes no part",
        ),
        ("bar.sync 1, 48;", "no multiple of a warp"),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 24;", "a bulk prefetch of 24 bytes that are not aligned to 16"),
        ("cp.async.bulk.prefetch.L2.global [%rd1+4096], 16;", "a bulk prefetch from outside the buffers"),
    ],
)
def test_a_fault_is_found(machine, body, said):
    ended = run(machine, body, (ctypes.c_uint64 * 64)())
    assert ended.status == FAULTED
    assert said in ended.report


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("instruction", "said"),
    [
        ("frob.u32 %r2, %r1, %r1;", "the executor does not know frob.u32"),
        ("szext.wrap.s32 %r2, %r1, 5;", "the executor does not know szext.wrap.s32"),
        ("ld.global.v2.u32 {%r2, %r3, %r4}, [%rd1];", "ld.global.v2.u32 with 3 registers"),
        ("ld.global.v2.u32 {%rd2, %r3}, [%rd1];", "%r3 is .b32, and .u64 is needed"),
        ("st.global.v2.u32 [%rd1], {%rd2, %r3};", "st.global.v2.u32 with the operands {%rd2, %r3}"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1}, %rd1, %rd2;", "matrices of a group of warps"),
        ("cp.async.bulk.tensor.2d.shared::cta.global.tile [%r1], [%rd1], [%r2];", "tensor maps are not executed"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "cp.async.cg of 8 bytes"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 12;", "cp.async.ca of 12 bytes"),
        ("mapa.u64 %rd2, %rd1, %r1;", "clusters of several blocks are not executed"),
        ("mbarrier.pending_count.b64 %r2, %rd1;", "the executor does not know mbarrier.pending_count.b64"),
        ("call (%r1), f, (%r2);", "f is called and has no body here"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r2}, {%r3}, {%r4}, {%r5};",
            "with 1, 1, 1, 1 registers",
        ),
        ("ld.param.u64 %rd2, [k_param_1];", "[k_param_1] is no parameter of the kernel"),
        ("ld.global.u32 %r2, %rd1;", "%rd1 is no address"),
        ("bra nowhere;", "there is no label nowhere"),
        ("over: over:", "a second label over between the same braces"),
        ("@%p1 bra;", "the executor does not know bra with the operands left out"),
        (".frob .u32 x;", "not known: .frob .u32 x"),
    ],
)
def test_what_is_not_known_is_named_with_its_line(machine, instruction, said):
    with pytest.raises(CompileError) as raised:
        run(machine, instruction, (ctypes.c_uint64 * 4)())
    assert str(raised.value).startswith("PTX:8: ")
    assert said in raised.value.cause
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int main() {}", "PTX: there is no .target, so this is no PTX"),
        (".target sm_90\n.visible .entry k() {\n ret;", "PTX:2: a brace is not closed"),
        (".target sm_90\n.visible .entry k(.param .u7 x) { ret; }", "PTX:2: not understood: .param .u7 x"),
        (".target sm_90\n.global .u32 x[2;", "PTX:2: not understood: .global .u32 x[2"),
        (".target sm_90\nfrob", "PTX:2: not understood: frob"),
    ],
)
def test_a_text_that_is_no_ptx_is_one_line(text, said):
    with pytest.raises(CompileError, match=re.escape(said)):
        parse(text)

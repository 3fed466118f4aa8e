"""16-bit floats on the PTX device, one and two in a register, against examples worked out by hand from the ISA."""

import pytest
from test_opcodes import machine  # noqa: F401
from test_opcodes import test_an_opcode_is_what_the_isa_says as check

ROWS = (
    ("add.f16 %rs6, %rs3, %rs4", (0x3C00, 0x4000), 0x4200),  # 1 + 2
    ("sub.rn.f16 %rs6, %rs3, %rs4", (0x0401, 0x0400), 0x0001),  # a subnormal number
    ("sub.ftz.f16 %rs6, %rs3, %rs4", (0x0401, 0x0400), 0),
    ("mul.sat.f16x2 d, a, b", (0x42004200, 0x42003400), 0x3C003A00),  # 9 is 1; 3/4
    ("fma.rn.f16 %rs6, %rs3, %rs4, %rs5", (0x3C01, 0x3C01, 0xBC02), 0x0010),  # 2^-20: rounded once
    ("fma.rn.bf16 %rs6, %rs3, %rs4, %rs5", (0x3F81, 0x3FC0, 0xA180), 0x3FC1),  # just below the middle of two numbers
    ("fma.rn.relu.f16 %rs6, %rs3, %rs4, %rs5", (0x3C00, 0xBC00, 0), 0),
    ("max.NaN.f16 %rs6, %rs3, %rs4", (0x3C00, 0x7E00), 0x7FFF),
    ("min.bf16 %rs6, %rs3, %rs4", (0x3F80, 0x7FC0), 0x3F80),
    ("neg.f16x2 d, a", (0x3C00BC00,), 0xBC003C00),
    ("abs.bf16 %rs6, %rs3", (0xBF80,), 0x3F80),
    ("ex2.approx.f16 %rs6, %rs3", (0x4200,), 0x4800),  # 2^3
    ("ex2.approx.ftz.bf16 %rs6, %rs3", (0xC300,), 0),  # 2^-128 is subnormal
    ("ex2.approx.ftz.bf16x2 d, a", (0xC2FCC2FD,), 0x00800000),  # 2^-126 and 2^-126.5
    ("setp.lt.f16 %p6, %rs3, %rs4", (0xBC00, 0x0001), 1),
    ("setp.geu.bf16 %p6, %rs3, %rs4", (0x7FC0, 0), 1),
    ("set.gt.f16x2.f16x2 d, a, b", (0x3C00BC00, 0), 0x3C000000),
    ("set.ltu.u32.bf16x2 d, a, b", (0x7FC03F80, 0x3F803F80), 0xFFFF0000),
    ("cvt.rni.f16.f16 %rs6, %rs3", (0x4100,), 0x4000),  # 2.5 is 2, ties to even
    ("cvt.rmi.f16.f16 %rs6, %rs3", (0xC100,), 0xC200),  # -2.5 is -3
    ("cvt.rpi.bf16.bf16 %rs6, %rs3", (0x3F81,), 0x4000),  # 1 + 2^-7 is 2
    ("cvt.rn.sat.f16.f32 %rs6, %r3", (0x40400000,), 0x3C00),  # 3 is 1
    ("cvt.rm.f16.f32 %rs6, %r3", (0xBF800800,), 0xBC01),  # -1 - 2^-12, away from zero
    ("cvt.rp.f16.f32 %rs6, %r3", (0xBF800800,), 0xBC00),
    ("cvt.rm.f16.f32 %rs6, %r3", (0x4788B800,), 0x7BFF),  # 70000 is the largest number
    ("cvt.rp.bf16.f32 %rs6, %r3", (0x3F800001,), 0x3F81),
    ("cvt.rn.bf16.f64 %rs6, %rd3", (0x3FF0100000001000,), 0x3F81),  # 1 + 2^-8 + 2^-40: rounded once
    ("cvt.rn.bf16.s32 %rs6, %r3", (0x01010001,), 0x4B81),
    ("cvt.rn.bf16.u64 %rs6, %rd3", (0x8080000000000001,), 0x5F01),
)  # fmt: skip


@pytest.mark.cpu
@pytest.mark.parametrize(("instruction", "given", "result"), ROWS, ids=[row[0] for row in ROWS])
def test_an_opcode_is_what_the_isa_says(machine, instruction, given, result):  # noqa: F811
    check(machine, instruction, given, result)

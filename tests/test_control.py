"""Control bits: instructions of NVRTC 13's SASS decoded by hand, and what nvdisasm prints of them."""

import re

import pytest

from common.compile.control import SIZE, Control, control
from common.compile.elf import section
from common.compile.nvrtc import compile_cubin
from common.compile.sass import sass

TEXT = """
extern "C" __global__ void decode(const float *x, float *y) {
  __shared__ float s[64];
  const float a = x[threadIdx.x], b = x[threadIdx.x + 64];
  s[threadIdx.x] = a * a * b;
  __syncthreads();
  y[threadIdx.x] = sqrtf(s[63 - threadIdx.x] + __shfl_xor_sync(~0u, a, 1));
}
"""
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", re.MULTILINE)


@pytest.mark.parametrize(
    ("word", "bits", "found"),  # bits: reuse, waits, read, written, no yield, stall
    [
        # SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R52+URZ], R49
        (0x000066000800017F00000031340075A7, "0000 000000 000 001 1 0011", Control(3, False, 1, 0, (), ())),
        # LOP3.LUT R54, R50.reuse, 0x1, RZ, 0xc0, !PT
        (0x040FE200078EC0FF0000000132367812, "0001 000000 111 111 1 0001", Control(1, False, None, None, (), (0,))),
        # HMMA.16816.F32.BF16 R56, R44.reuse, R48, RZ, which waits for a load of R48
        (0x044FEC00000418FF000000302C38723C, "0001 000100 111 111 1 0110", Control(6, False, None, None, (2,), (0,))),
        # ERRBAR
        (0x000FC0000000000000000000000079AB, "0000 000000 111 111 0 0000", Control(0, True, None, None, (), ())),
        # ISETP.EQ.AND P0, PT, R73, RZ, PT, before a branch that needs P0
        (0x000FDA0003F04070000000FF4900780C, "0000 000000 111 111 0 1101", Control(13, True, None, None, (), ())),
    ],
)
def test_instructions_by_hand(word, bits, found):
    assert word >> 105 == int(bits.replace(" ", ""), 2)
    assert control(word.to_bytes(SIZE, "little")) == found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_control_bits_of_a_compiled_kernel(arch, cpu_cache):
    """nvdisasm prints reuse; loads and square roots have a scoreboard, for which the first product waits."""
    cubin = compile_cubin(TEXT, arch, cache_dir=cpu_cache / "cubins")
    code = section(cubin, ".text.decode")
    found = [
        (name, operands, control(code[int(at, 16) :][:SIZE]))
        for at, name, operands in INSTRUCTION.findall(sass(cubin, "decode", cpu_cache / "cubins"))
    ]
    for name, operands, bits in found:
        assert bool(bits.reuse) == (".reuse" in operands), f"{name} {operands}"
        assert (bits.written is not None) >= name.startswith(("LDG", "MUFU")), f"{name} {operands}"
    loads = [bits for name, _, bits in found if name.startswith("LDG")]
    first = next(bits for name, operands, bits in found if name.startswith("FMUL"))
    assert {load.written for load in loads} & set(first.waits), "the first product waits for a load"
    assert all(bits.stall >= 1 for name, _, bits in found if name.startswith(("F", "IMAD")))

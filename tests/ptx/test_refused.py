"""Texts that are refused by name: those that ptxas of CUDA 12.8 refuses, and valid ones that are not executed."""

import ctypes

import numpy as np
import pytest
from test_opcodes import machine, run  # noqa: F401
from test_public_code import launched

from common.devices.ptx.text import parse
from common.errors import CompileError

pytestmark = pytest.mark.cpu
INSTRUCTIONS = """
add.rn.rn.f32 %r2, %r3, %r4 | does not know add.rn.rn.f32
div.f32 %r2, %r3, %r4 | does not know div.f32
cvt.f32.f64 %r2, %rd3 | does not know cvt.f32.f64
setp.eq.ne.s32 %p1, %r2, %r3 | does not know setp.eq.ne.s32
setp.lt.s32 %p1, %r2, %r3, %p2 | setp.lt.s32 with the operands
setp.lt.s32 !%p1, %r2, %r3 | !%p1 is no register
ld.relaxed.acquire.gpu.global.u32 %r2, [%rd1] | does not know ld.relaxed.acquire
ld.global.u32 %r2, [%rd1], %r3 | ld.global.u32 with the operands %r2, [%rd1], %r3
ld.global.nc.L2::cache_hint.u32 %r2, [%rd1] | with the operands %r2, [%rd1]
ld.global.u32 %r2, [%r3] | %r3 is no address of global memory
ld.global.u32 %r2, [tile] | [tile] lies in shared memory
ld.param.u64 %r2, [k_param_0] | %r2 is .b32, and .u64 is needed
st.global.u32 [%rd1], tile | tile is no operand here
red.acquire.gpu.global.add.u32 [%rd1], 1 | red.acquire.gpu.global.add.u32 with the operands
red.global.add.u32 [%rd1] | red.global.add.u32 with the operands [%rd1]
atom.global.add.v2.f32 {%r2}, [%rd1], {%r3, %r4} | with 1 registers
mbarrier.init.shared.b64 [tile] | mbarrier.init.shared.b64 with the operands [tile]
cp.async.ca.global.shared [%r2], [%rd1], 8 | does not know cp.async.ca.global.shared
match.any.sync.b32 %r2|%p1, %r3, -1 | match.any.sync.b32 with the operands
fence.sc.gpu %r2 | fence.sc.gpu with the operands %r2
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%r1, %r2, %r3, %r4, %r5, %r6, %r7} | with 7 registers
add.f32 %r2, %r3, 1 | 1 is no register
add.s32 %r2, %r3, 0f3F800000 | 0f3F800000 is no register
add.s32 %r2, %r3, %tid.x | %tid.x is no operand here
selp.u32 %r2, , %r3, %r4, %p1 | selp.u32 with the operands
mov.u64 %r2, 6 | %r2 is .b32, and .u64 is needed
.reg .f32 %f; add.s32 %r2, %r3, %f | %f is .f32, and .s32 is needed
add.s32 %r2, %r1 | does not know add.s32 with the operands %r2, %r1
add.s32 %r2, %r1, %rd1 | %rd1 is .b64, and .s32 is needed
add.s32 %r2, %r1, %r177 | %r177 is no register
one: two: bra one, two | does not know bra with the operands one, two
@0 mov.u32 %r2, 1 | does not know @0
.reg .b32 %r2 | a second register: .reg .b32 %r2
.reg .b32 x = 5 | not known: .reg .b32 x = 5
.shared .align 3 .b8 x[4] | not understood: .shared .align 3
"""
TOP = """
.global .u32 x[2] = {1, 2, 3}; | not understood: .global .u32 x[2]
.visible .entry k(.param .u32 a, .param .u32 a) { ret; } | not understood: .param .u32 a
.visible .entry k() .maxntid x { ret; } | not understood: k() .maxntid x
.visible .entry k() { ret; } .visible .entry k() { ret; } | a second kernel k
.address_size 32 | not understood: .address_size 32
"""


def split(rows):
    return [pytest.param(*map(str.strip, row.rsplit(" | ", 1)), id=row) for row in rows.strip().splitlines()]


@pytest.mark.parametrize(("instruction", "said"), split(INSTRUCTIONS))
def test_an_instruction_is_refused_by_name(machine, instruction, said):  # noqa: F811
    with pytest.raises(CompileError) as raised:
        run(machine, f"{instruction};", (ctypes.c_uint64 * 4)())
    assert said in raised.value.cause


@pytest.mark.parametrize(("text", "said"), split(TOP))
def test_a_declaration_is_refused_by_name(text, said):
    with pytest.raises(CompileError) as raised:
        parse(f".version 8.0\n.target sm_90\n{text}\n")
    assert said in raised.value.cause


@pytest.mark.parametrize(
    ("behind", "body", "said"),
    [
        (".reqnctapercluster 2, 1, 1", "", "clusters of several blocks"),
        ("", "mov.u32 %r2, %cluster_ctarank;", "%cluster_ctarank: clusters of several blocks"),
        ("", "mov.u32 %r2, %total_smem_size;", "does not know the special register %total_smem_size"),
        ("", "mapa.shared::cluster.u32 %r2, %r3, 0;", "clusters of several blocks"),
        ("", "barrier.cluster.arrive.aligned;", "clusters of several blocks"),
        ("", "call.uni twice, (param0);", "twice is called and has no body here"),
        ("", "t: .branchtargets a, b; brx.idx %r1, t; a: b:", "brx.idx: branches by a table are not executed"),
        ("", "red.global.min.noftz.v2.f16x2 [%rd1], {%r1, %r2};", "does not know red.global.min.noftz.v2.f16x2"),
        ("", "atom.global.max.f32 %r1, [%rd1], %r2;", "does not know atom.global.max.f32"),
        ("", "{ .shared .b32 s; } { .shared .b32 s; }", "a second variable s"),
    ],
)
def test_what_is_not_executed_is_refused_by_name(machine, behind, body, said):  # noqa: F811
    with pytest.raises(CompileError) as error:
        launched(machine, ("", behind), body, np.zeros(4, np.uint32))
    assert said in str(error.value)
    assert "\n" not in str(error.value)

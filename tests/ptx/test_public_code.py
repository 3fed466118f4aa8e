"""Needs of public kernels, on the PTX device: values worked out by hand or by NumPy, and faults by their words."""

import ctypes
import struct

import numpy as np
import pytest
from test_opcodes import machine, run  # noqa: F401

from common.devices.ptx.program import Buffer, Options, PtxProgram
from common.devices.ptx.report import FAULTED, FINISHED, RACED, TRAPPED
from common.errors import CompileError, Refused

pytestmark = pytest.mark.cpu
FIRST_LANE = "setp.ne.u32 %p1, %r1, 0; @%p1 bra over; {} over:"
OWN_BYTE = "mov.u32 %r2, tile; add.s32 %r2, %r2, %r1; st.shared.u8 [%r2], %r1; "
NEIGHBOR = "mov.u32 %r2, tile; xor.b32 %r3, %r1, 1; mad.lo.u32 %r4, %r1, 4, %r2; mad.lo.u32 %r5, %r3, 4, %r2; "
GRID_SYNC = """mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2; mov.b64 %rd2, {%r3, %r2}; mov.u32 %r4, %ctaid.x;
mul.wide.u32 %rd3, %r4, 4; add.s64 %rd3, %rd1, %rd3; barrier.sync 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra met;
add.u32 %r5, %r4, 5; st.global.u32 [%rd3], %r5; atom.add.acq_rel.gpu.u32 %r6, [%rd2+4], 1;
again: ld.acquire.gpu.u32 %r6, [%rd2+4]; setp.lt.u32 %p2, %r6, 2; @%p2 bra again; met: barrier.sync 0;
xor.b32 %r4, %r4, 1; mul.wide.u32 %rd4, %r4, 4; add.s64 %rd4, %rd1, %rd4; ld.global.u32 %r7, [%rd4];
@!%p1 st.global.u32 [%rd3+8], %r7;"""
PRINTED = """{ .param .b64 param0; st.param.b64 [param0], %rd1; .param .b64 param1; st.param.b64 [param1+0], %rd1;
.param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %r2, [retval0+0]; }
st.global.u32 [%rd1], 5;"""
VOTED = """rem.u32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0; bar.red.popc.u32 %r3, 0, %p1; bar.red.and.pred %p2, 0, !%p1;
bar.red.or.pred %p3, 0, %p1; selp.u32 %r4, 100, 0, %p2; selp.u32 %r5, 1000, 0, %p3; add.u32 %r3, %r3, %r4;
add.u32 %r3, %r3, %r5; st.global.u32 [%rd1], %r3;"""
COUNTED = """mov.u32 {r}, 0; {{ .reg .pred p; again: add.u32 {r}, {r}, 1; setp.eq.u32 p, {r}, {times}; @p bra done;
bra again; done: }} st.global.u32 [%rd1+{at}], {r};"""  # as the loops around mbarrier.try_wait in public code
LATER = "bra second; first: st.global.u32 [{}], {}; ret; second: {} bra first;"  # uses a register before its text
ADDED = "add.u32 %r6, %r1, 9; mov.u32 %r5, %r6; setp.ne.u32 %p1, %r1, 0; @%p1 ret;"
VOLATILE = FIRST_LANE.format("""mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r5, tile; more: st.shared.u32 [%r5], %r2;
add.u32 %r5, %r5, 4; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 400; @%p2 bra more; mov.u32 %r5, tile;
again: ld.volatile.shared.u32 %r4, [%r5]; add.u32 %r3, %r3, %r4; add.u32 %r5, %r5, 4; sub.u32 %r2, %r2, 1;
setp.gt.u32 %p2, %r2, 0; @%p2 bra again; st.global.u32 [%rd1], %r3;""")
# Lanes 0 and 1 are a pair, and 2 and 3: lane 3 comes to its own only when lane 0 has gone on.
PAIRS = """setp.gt.u32 %p1, %r1, 3; @%p1 ret; setp.lt.u32 %p2, %r1, 2; selp.u32 %r2, 3, 12, %p2;
setp.eq.u32 %p3, %r1, 3; @!%p3 bra meet; wait: ld.relaxed.gpu.global.u32 %r3, [%rd1]; setp.eq.u32 %p4, %r3, 0;
@%p4 bra wait; st.shared.u32 [tile], 77; meet: {meet}
setp.eq.u32 %p6, %r1, 0; @%p6 st.relaxed.gpu.global.u32 [%rd1], 1; setp.ne.u32 %p6, %r1, 2; @%p6 ret; {look}"""
MET = "setp.eq.u32 %p5, %r1, 1; @%p5 bra other; bar.warp.sync %r2; bra.uni met; other: bar.warp.sync %r2; met:"
# name: (instructions, threads, blocks, words before, {number of a word: its value afterwards})
VALUES = {
    "sums of bf16x2": ("mov.b32 %r2, 0x3f803f80; red.global.add.noftz.bf16x2 [%rd1], %r2;", 128, 1, (),
                       {0: 0x43004300}),
    "sums of f16x2": ("mov.b32 %r2, 0x3c003800; red.global.add.noftz.f16x2 [%rd1], %r2;", 32, 1, (), {0: 0x50004C00}),
    "sums of vectors": ("mov.b32 %r2, 0f3F800000; mov.b32 %r3, 0f40000000; red.global.add.v2.f32 [%rd1], {%r2, %r3}; "
                        "atom.global.add.v2.f32 {%r2, _}, [%rd1+8], {%r3, %r2};", 32, 1, (),
                        {0: 0x42000000, 1: 0x42800000, 2: 0x42800000, 3: 0x42000000}),
    "a part of a vector": ("ld.global.v4.u32 {_, %r2, _, %r3}, [%rd1]; add.u32 %r2, %r2, %r3; "
                           "setp.ne.u32 %p1, %r1, %r1; @ ! %p1 st.global.u32 [%rd1], %r2;", 1, 1, (1, 2, 3, 4), {0: 6}),
    "sums of f16": ("mov.b16 %rs1, 0x3c00; atom.global.gpu.acq_rel.add.noftz.f16 %rs2, [%rd1+2], %rs1;", 32, 1,
                    (7,), {0: 0x50000007}),
    "a subnormal sum of f64": (FIRST_LANE.format("mov.u64 %rd2, 1; red.global.add.f64 [%rd1], %rd2;"), 32, 1, (1,),
                               {0: 2}),
    "a subnormal sum of f32": (FIRST_LANE.format("red.global.add.f32 [%rd1], 0f00000001; st.shared.u32 [tile], 1; "
                                                 "atom.shared.add.f32 %r2, [tile], 0f00000001; ld.shared.u32 %r3, "
                                                 "[tile]; st.global.u32 [%rd1+4], %r2; st.global.u32 [%rd1+8], %r3;"),
                               32, 1, (1,), {0: 0, 1: 1, 2: 2}),  # kept in shared memory only
    "a sum that is no number": (FIRST_LANE.format("red.global.add.f32 [%rd1], 0fFF800000;"), 32, 1, (0x7F800000,),
                                {0: 0x7FFFFFFF}),
    "volatile words, not polled": (VOLATILE, 32, 1, (), {0: 399 * 400 // 2}),
    "votes of pairs": (PAIRS.format(meet="vote.sync.ballot.b32 %r4, %p2, %r2;", look="st.global.u32 [%rd1+4], %r4;"),
                       32, 1, (), {0: 1}),
    "barriers of pairs": (PAIRS.format(meet=MET, look="ld.shared.u32 %r4, [tile]; st.global.u32 [%rd1+4], %r4;"),
                          32, 1, (), {0: 1, 1: 77}),
    "a sum with a policy": ("mov.u64 %rd2, 0; red.global.add.L2::cache_hint.f32 [%rd1], 0f3F800000, %rd2; "
                            "mov.u32 %r2, 2; atom.global.add.L2::cache_hint.u32 %r3, [%rd1+4], %r2, %rd2;", 32, 1, (),
                            {0: 0x42000000, 1: 64}),
    "arrays of dynamic memory": (".extern .shared .align 4 .b8 low[]; .extern .shared .align 128 .b8 high[]; "
                                 ".shared .b8 before[52]; mov.u32 %r2, low; mov.u32 %r3, high; sub.u32 %r2, %r3, %r2; "
                                 "and.b32 %r3, %r3, 127; st.global.v2.u32 [%rd1], {%r2, %r3};", 1, 1, (9, 9),
                                 {0: 0, 1: 0}),
    "unwritten local memory": (".local .b32 own; ld.local.f32 %r2, [own]; setp.nan.f32 %p1, %r2, %r2; "
                               "selp.u32 %r3, 1, 0, %p1; st.global.u32 [%rd1], %r3;", 1, 1, (), {0: 1}),
    "a subnormal sum": (FIRST_LANE.format("mov.b16 %rs1, 1; red.global.add.noftz.bf16 [%rd1], %rs1;"), 32, 1, (3,),
                        {0: 4}),
    "a line's directive behind a label": ("one: .loc 1 2 3\n st.global.u32 [%rd1], 5;", 1, 1, (), {0: 5}),
    "bytes of a vector": ("ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd1]; "
                          "st.global.v4.u8 [%rd1+4], {%rs4, %rs3, %rs2, 9};", 32, 1, (0x04030201,), {1: 0x09020304}),
    "a barrier of the grid": (GRID_SYNC, 64, 2, (), {0: 5, 1: 6, 2: 6, 3: 5}),
    "printf": (PRINTED, 32, 1, (), {0: 5}),
    "votes of a block": (VOTED, 64, 1, (), {0: 1022}),
    "bytes apart": (OWN_BYTE + "ld.shared.u8 %r3, [%r2]; add.u32 %r3, %r3, 0; st.global.u32 [%rd1], 1;", 64, 1, (), {}),
    "a warp in step, met": (NEIGHBOR + "st.volatile.shared.u32 [%r4], %r1; bar.warp.sync -1; "
                            "ld.volatile.shared.u32 %r6, [%r5];", 32, 1, (), {}),
    "labels between braces": (COUNTED.format(r="%r3", times=3, at=0) + COUNTED.format(r="%r4", times=4, at=4), 32, 1,
                              (), {0: 3, 1: 4}),
    "a constant below its use": (LATER.format("%rd1", "%r5", "mov.u32 %r5, 7;"), 32, 1, (), {0: 7}),
    "a copy below its use": (LATER.format("%rd1", "%r5", ADDED), 32, 1, (), {0: 9}),
    "a parameter below its use": (LATER.format("%rd5", 3, "ld.param.u64 %rd5, [k_param_0];"), 32, 1, (), {0: 3}),
    "an address below its use": (LATER.format("%rd5", 4, "add.u64 %rd4, %rd1, 4; cvta.to.global.u64 %rd5, %rd4;"), 32,
                                 1, (), {1: 4}),
    "a parameter by its address": ("""mov.b64 %rd2, k_param_0; ld.param.u64 %rd3, [%rd2]; cvta.param.u64 %rd4, %rd2;
                                   ld.u64 %rd5, [%rd4]; ld.param.v2.u32 {%r2, %r3}, [k_param_0+0];
                                   mov.b64 %rd6, {%r2, %r3}; xor.b64 %rd3, %rd3, %rd5; xor.b64 %rd6, %rd6, %rd1;
                                   st.global.u64 [%rd5+8], %rd3; st.global.u64 [%rd5+16], %rd6;""", 32, 1, (9,) * 6,
                                   {2: 0, 3: 0, 4: 0, 5: 0}),
    "registers of one name": ("mov.u32 %r2, 3; add.u32 %r2, %r2, 1; { .reg .b32 %r<3>; mov.u32 %r2, 5; } "
                              "{ .reg .b64 %r<3>; mov.u64 %r2, 6; st.global.u64 [%rd1+8], %r2; } "
                              "st.global.u32 [%rd1], %r2;", 32, 1, (), {0: 4, 2: 6}),
}  # fmt: skip
HALVES = "setp.lt.u32 %p1, %r1, 16; mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 4, %r2; st.shared.u32 [%r2], %r1; "
BULK = """mov.u32 %r2, tile; setp.ne.u32 %p1, %r1, 0; @%p1 bra met; mbarrier.init.shared::cta.b64 [%r2], 1; {fence}
met: bar.sync 0; @%p1 bra come; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+16], [%rd1], 16, [%r2];
come: {wait}"""
WAIT = "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra again;"
FENCE, STORED = "fence.proxy.async;", "st.global.u32 [%rd1], 5;"
SOURCE = """setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 32; mov.u32 %r2, tile; {}
@%p1 cp.async.ca.shared.global [%r2], [%rd1], 4; {} bar.sync 0; cp.async.wait_all;"""
# name: (instructions, threads, how it ends, a part of the report)
ENDS = {
    "half of a warp at a barrier": (HALVES + "@%p1 bar.sync 0; ld.shared.u32 %r3, [%r2]; add.u32 %r3, %r3, 1;"
                                    "st.shared.u32 [%r2], %r3;", 64, FAULTED, "only some lanes of the warp"),
    "half of a warp, in a loop": ("and.b32 %r3, %r1, 3; mov.u32 %r4, 0; more: setp.ge.u32 %p1, %r4, %r3; @%p1 bra out; "
                                  "bar.sync 0; add.u32 %r4, %r4, 1; bra more; out: mad.lo.u32 %r5, %r4, 3, %r3;", 64,
                                  FAULTED, "only some lanes of the warp"),
    "half of a warp has returned": ("setp.lt.u32 %p1, %r1, 16; @%p1 ret;" + HALVES + "bar.sync 0; "
                                    "ld.shared.u32 %r3, [%r2];", 64, FINISHED, ""),
    "a warp has returned": ("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0; mov.u32 %r3, %r1;", 64, FINISHED, ""),
    "a barrier of single threads": (HALVES + "@%p1 bra low; barrier.sync 1; bra met; low: barrier.sync 1; met: "
                                    "xor.b32 %r3, %r2, 252; @!%p1 ld.shared.u32 %r4, [%r3];", 64, FINISHED, ""),
    "a byte and its word": (OWN_BYTE + "mov.u32 %r3, tile; ld.shared.u32 %r4, [%r3];", 32, RACED, "byte 0"),
    "a warp in step": (NEIGHBOR + "st.volatile.shared.u32 [%r4], %r1; ld.volatile.shared.u32 %r6, [%r5];", 32, RACED,
                       "nothing orders this"),
    "no fence after mbarrier.init": (BULK.format(fence="", wait=WAIT), 32, FINISHED, "by the guide's letter"),
    "a fence after mbarrier.init": (BULK.format(fence=FENCE, wait=WAIT), 32, FINISHED, ""),
    "the fence of another space": (BULK.format(fence=STORED + "fence.proxy.async.shared::cta;", wait=WAIT), 32, RACED,
                                   "no fence.proxy.async comes before this bulk copy of"),
    "a fence of each space": (BULK.format(fence=f"{STORED}fence.proxy.async.global; fence.proxy.async.shared::cta;",
                                          wait=WAIT), 32, FINISHED, ""),
    "a source too early": (SOURCE.format(f"@%p2 {STORED}", ""), 64, RACED, "nothing orders this"),
    "a source that changes": (SOURCE.format("", f"bar.sync 0; @%p2 {STORED}"), 64, RACED, "nothing orders this write"),
    "its own source": (SOURCE.format("", f"@%p1 {STORED}"), 64, RACED, "nothing orders this write"),
    "nobody waits for a copy": (BULK.format(fence=FENCE, wait=""), 32, FAULTED, "no thread has waited for this copy"),
    "division by zero": ("sub.u32 %r2, %r1, 5; div.u32 %r3, 7, %r2;", 32, FINISHED, "divided by zero"),
    "rest of a division by zero": ("mov.u64 %rd2, 0; rem.s64 %rd3, %rd1, %rd2;", 32, FINISHED, "divided by zero"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_words_are_what_the_isa_says(machine, name, seed):  # noqa: F811
    body, threads, blocks, given, wanted = VALUES[name]
    words = (ctypes.c_uint32 * 64)(*given)
    before = list(words)
    ended = run(machine, body, words, seed=seed, threads=threads, blocks=blocks, races=True)
    assert (ended.status, ended.report) == (FINISHED, "")
    if wanted:
        assert list(words) == [wanted.get(at, word) for at, word in enumerate(before)]


@pytest.mark.parametrize("name", ENDS)
def test_an_end_is_told(machine, name, seed):  # noqa: F811
    body, threads, status, said = ENDS[name]
    ended = run(machine, body, (ctypes.c_uint32 * 64)(), seed=seed, threads=threads, races=True)
    assert ended.status == status
    assert said in ended.report if said else ended.report == ""


def test_each_race_of_a_run_is_told_once(machine, seed):  # noqa: F811
    first, second = "st.global.u32 [%rd1], %r1;", "st.global.u32 [%rd1+4], %r1;"
    body = f"mov.u32 %r2, 0; more: {first} {second} add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9; @%p1 bra more;"
    ended = run(machine, body, (ctypes.c_uint32 * 4)(), seed=seed, threads=64, races=True)
    assert ended.status == RACED
    assert [line.split("which")[0] for line in ended.report.splitlines()] == [
        f"nothing orders this write of words byte {byte}, " for byte in (0, 4)
    ]


def launched(machine, head, body, words, threads=32, blocks=1, **options):  # noqa: F811
    """End of a module of one kernel `k` with the address of `words` in %rd1. head: before and behind its name."""
    before, behind = head
    text = f""".version 8.0\n.target sm_90\n.address_size 64\n{before}
    .visible .entry k(.param .u64 words) {behind} {{ .reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [words]; {body} ret; }}"""
    buffer = Buffer("words", words.ctypes.data, words.nbytes)
    passed = struct.pack("<Q", words.ctypes.data)
    kernel = PtxProgram(machine, text).kernel("k")
    return kernel.launch((blocks, 1, 1), (threads, 1, 1), passed, [buffer], 0, Options(**options))


def test_an_assertion_that_fails_is_a_trap_with_its_text(machine):  # noqa: F811
    text = ", ".join(map(str, b"n > 0\0"))
    body = """mov.u64 %rd2, said; cvta.global.u64 %rd3, %rd2; { .param .b64 param0; st.param.b64 [param0], %rd3;
    call.uni __assertfail, (param0); }"""
    ended = launched(machine, (f".global .align 1 .b8 said[6] = {{{text}}};", ""), body, np.zeros(4, np.uint32))
    assert (ended.status, ended.report.partition(":")[0]) == (TRAPPED, "the assertion n > 0 failed")


def test_variables_hold_addresses_of_others(machine):  # noqa: F811
    variables = """.global .align 4 .u32 table[3] = {7, 8, 9}; .global .align 8 .u64 inner[2] = {0, generic(table)+8};
    .global .align 8 .u64 outer = inner; .func f() { ret; } .global .align 8 .u64 unused = f;
    .global .align 4096 .b8 wide[4]; .const .align 4096 .b8 more[4];"""
    body = """ld.global.u64 %rd2, [outer]; ld.global.u64 %rd3, [%rd2+8]; ld.global.u32 %r2, [%rd3];
    mov.u64 %rd4, wide; mov.u64 %rd5, more; or.b64 %rd4, %rd4, %rd5; cvt.u32.u64 %r3, %rd4; and.b32 %r3, %r3, 4095;
    st.global.v2.u32 [%rd1], {%r2, %r3};"""
    words = np.ones(4, np.uint32)
    assert launched(machine, (variables, ""), body, words).status == FINISHED
    assert words.tolist() == [9, 0, 1, 1]
    with pytest.raises(CompileError, match="f: an initial value is the address of this, no global variable"):
        launched(machine, (variables, ""), "mov.u64 %rd2, unused;", words)


@pytest.mark.parametrize("fence", ["", "fence.acq_rel.gpu;"])
@pytest.mark.parametrize("later", ["", "st.relaxed.gpu.global.u32 [%rd1], 9;"])
def test_a_word_is_made_empty_before_another_block_looks(machine, fence, later, seed):  # noqa: F811
    """Block 0 makes word 0 empty, says so by word 1, and may fill word 0; all stores are relaxed."""
    body = f"""mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra polls;
    st.relaxed.gpu.global.u32 [%rd1], 0xffffffff; {fence} st.relaxed.gpu.global.u32 [%rd1+4], 1; {later} ret;
    polls: ld.relaxed.gpu.global.u32 %r2, [%rd1+4]; setp.ne.u32 %p2, %r2, 1; @%p2 bra polls; {fence}
    ld.relaxed.gpu.global.u32 %r3, [%rd1];"""
    words, options = np.zeros(4, np.uint32), {"seed": seed, "races": True, "empty": 0xFFFFFFFF}
    ended = launched(machine, ("", ""), body, words, threads=1, blocks=2, **options)
    assert (ended.status, "has made empty" in ended.report) == ((FINISHED, False) if fence else (RACED, True))


def test_a_counter_that_a_release_stores_may_come_to_the_empty_word(machine, seed):  # noqa: F811
    body = """mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra polls;
    st.release.gpu.global.u32 [%rd1], 0xffffffff; ret;
    polls: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.ne.u32 %p2, %r2, 0xffffffff; @%p2 bra polls;"""
    words, options = np.zeros(4, np.uint32), {"seed": seed, "races": True, "empty": 0xFFFFFFFF}
    ended = launched(machine, ("", ""), body, words, threads=1, blocks=2, **options)
    assert (ended.status, ended.report) == (FINISHED, "")


def test_eight_words_are_loaded_and_stored(machine):  # noqa: F811
    body = """ld.global.v8.f32 {%r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9}, [%rd1];
    st.global.v8.b32 [%rd1+32], {%r9, %r8, %r7, %r6, %r5, %r4, %r3, %r2};"""
    memory = np.arange(24, dtype=np.uint32)
    words = memory[-memory.ctypes.data % 32 // 4 :][:16]  # aligned to 32 bytes
    before = words[:8].tolist()
    assert launched(machine, ("", ""), body, words, threads=1).status == FINISHED
    assert words.tolist() == before + before[::-1]


@pytest.mark.parametrize("sizes", ["64", "32, 2", "16, 2"])
def test_a_block_has_the_required_sizes(machine, sizes):  # noqa: F811
    with pytest.raises(Refused, match="the kernel requires"):
        launched(machine, ("", f".reqntid {sizes}"), "", np.zeros(4, np.uint32))
    assert launched(machine, ("", ".reqntid 32"), "", np.zeros(4, np.uint32)).status == FINISHED


RELEASED = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 1; @%p1 bra far;
setp.ne.u32 %p1, %r1, 0; @%p1 bra near;
own: ld.relaxed.gpu.global.u32 %r3, [%rd1+4]; setp.eq.u32 %p2, %r3, 0; @%p2 bra own;
red.relaxed.gpu.global.add.u32 [%rd1+4], 1; ret;
near: ld.relaxed.gpu.global.u32 %r3, [%rd1+4]; setp.ne.u32 %p2, %r3, 2; @%p2 bra near; fence.acq_rel.{scope};
ld.global.u32 %r4, [%rd1]; ret;
far: setp.ne.u32 %p1, %r1, 0; @%p1 ret; st.global.u32 [%rd1], 9; st.release.gpu.global.u32 [%rd1+4], 1;"""


@pytest.mark.parametrize(("scope", "status"), [("cta", RACED), ("gpu", FINISHED)])
def test_a_fence_of_a_block_takes_nothing_of_another(machine, scope, status, seed):  # noqa: F811
    """Block 1 releases, thread 0 of block 0 adds to the same word without an order, thread 1 looks at that word."""
    options = {"seed": seed, "races": True}
    ended = launched(machine, ("", ""), RELEASED.format(scope=scope), np.zeros(4, np.uint32), 2, 2, **options)
    assert ended.status == status


def test_a_cluster_of_one_block_is_a_block(machine):  # noqa: F811
    words = np.zeros(4, np.uint32)
    assert launched(machine, ("", ".reqnctapercluster 1, 1, 1"), "st.global.u32 [%rd1], 3;", words).status == FINISHED
    assert words[0] == 3


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_writes_what_ldmatrix_reads(machine, trans):  # noqa: F811
    """ldmatrix has a test of its own."""
    body = f"""mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.s32 %r3, %r3, %r2; mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd3, %rd1, %rd2; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd3];
    stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r3], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r8, %r9, %r10, %r11}}, [%r3];
    st.global.v4.u32 [%rd3], {{%r11, %r10, %r9, %r8}};"""
    words = (ctypes.c_uint32 * 128)(*range(128))
    assert run(machine, body, words, races=True).status == FINISHED
    assert list(words) == np.arange(128).reshape(32, 4)[:, ::-1].ravel().tolist()

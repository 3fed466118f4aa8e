"""Opcodes of memory, copies and whole warps on the PTX device against examples worked out by hand from the ISA."""

import ctypes

import numpy as np
import pytest
from test_opcodes import machine, run  # noqa: F401

from common.devices.ptx.report import FINISHED, TRAPPED

pytestmark = pytest.mark.cpu
GIVEN = (0x80FF7F01, 2, 3, 4)  # words before; %rd1 is their address, %r1 the thread
LOW = 0xFFFFFFFF
POLL = "again: mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra.uni again;"
# Each lane copies the fourth word into a place of its own after the mbarrier in `tile`, and hands its copy over.
COPIED = """mov.u32 %r2, tile; setp.ne.u32 %p1, %r1, 0; @%p1 bra met; mbarrier.init.shared::cta.b64 [%r2], {count};
met: bar.sync 0; shl.b32 %r3, %r1, 2; add.s32 %r3, %r3, %r2; cp.async.ca.shared.global [%r3+16], [%rd1+12], 4;
cp.async.mbarrier.arrive{inc}.shared::cta.b64 [%r2]; """
# (instructions, {number of a word: its value afterwards})
ROWS = (
    ("ld.global.s32 %rd2, [%rd1]; st.global.u64 [%rd1+16], %rd2;", {4: 0x80FF7F01, 5: LOW}),
    ("ld.global.nc.u16 %rs1, [%rd1+2]; st.global.u16 [%rd1+8], %rs1;", {2: 0x80FF}),
    ("ld.global.f32 %r2, [%rd1+4]; st.global.f32 [%rd1+8], %r2;", {2: 2}),
    ("ld.global.nc.v2.u32 {%r2, %r3}, [%rd1+8]; st.global.v2.u32 [%rd1], {%r3, %r2};", {0: 4, 1: 3}),
    ("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; st.global.v4.u32 [%rd1], {%r5, %r4, %r3, %r2};",
     {0: 4, 1: 3, 2: 2, 3: 0x80FF7F01}),
    ("ld.global.v4.f32 {%r2, %r3, %r4, %r5}, [%rd1]; st.global.f32 [%rd1+16], %r4;", {4: 3}),
    ("ld.global.nc.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; st.global.u32 [%rd1+16], %r5;", {4: 4}),
    ("ld.global.nc.L1::no_allocate.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; st.global.u32 [%rd1+16], %r2;",
     {4: 0x80FF7F01}),
    ("ld.volatile.global.u32 %r2, [%rd1+4]; st.global.u32 [%rd1+16], %r2;", {4: 2}),
    ("ld.param.u32 %r2, [k_param_0]; cvt.u32.u64 %r3, %rd1; sub.s32 %r4, %r2, %r3; st.global.u32 [%rd1], %r4;", {0: 0}),
    ("st.shared.v4.u32 [tile], {1, 2, 3, 4}; ld.shared.v2.u32 {%r2, %r3}, [tile+8]; "
     "st.shared.v2.u32 [tile], {%r3, %r2}; ld.shared.v2.u32 {%r4, %r5}, [tile]; st.global.u32 [%rd1], %r4;", {0: 4}),
    ("ld.global.v4.f32 {%r2, %r3, %r4, %r5}, [%rd1]; st.shared.v4.f32 [tile], {%r2, %r3, %r4, %r5}; "
     "ld.shared.v4.f32 {%r6, %r7, %r8, %r2}, [tile]; st.global.f32 [%rd1], %r8;", {0: 3}),
    ("ld.global.v2.f32 {%r2, %r3}, [%rd1+8]; st.shared.v2.f32 [tile], {%r3, %r2}; ld.shared.f32 %r4, [tile]; "
     "ld.shared.v2.f32 {%r5, %r6}, [tile]; st.shared.f32 [tile+8], %r4; ld.shared.v4.u32 {%r2, %r3, %r7, %r8}, [tile]; "
     "st.global.u32 [%rd1], %r7; st.global.u32 [%rd1+4], %r6;", {0: 4, 1: 3}),
    ("ld.global.nc.u16 %rs1, [%rd1]; st.shared.u16 [tile+2], %rs1; st.shared.u16 [tile], %rs1; "
     "ld.shared.v2.u32 {%r2, %r3}, [tile]; st.global.u32 [%rd1], %r2;", {0: 0x7F017F01}),
    (".local .align 8 .b8 own[16]; ld.global.v2.f32 {%r2, %r3}, [%rd1+8]; st.local.v2.f32 [own], {%r2, %r3}; "
     "st.local.f32 [own+8], %r3; ld.local.f32 %r4, [own+4]; st.global.f32 [%rd1], %r4;", {0: 4}),
    ("atom.add.acq_rel.gpu.global.u32 %r2, [%rd1+4], %r1;", {1: 2 + 31 * 32 // 2}),
    ("red.relaxed.gpu.global.max.u64 [%rd1+8], %rd1; setp.ne.u32 %p1, %r1, 0; @%p1 ret; mov.u64 %rd3, 7; "
     "atom.relaxed.gpu.global.exch.b64 %rd2, [%rd1+8], %rd3; sub.s64 %rd4, %rd2, %rd1; "
     "st.global.u64 [%rd1+16], %rd4;", {2: 7, 3: 0}),
    ("mov.u64 %rd2, 1; red.relaxed.gpu.global.add.u64 [%rd1+8], %rd2;", {2: 3 + 32}),
    ("st.relaxed.gpu.global.u32 [%rd1], 9; ld.relaxed.gpu.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; "
     "st.global.u32 [%rd1+16], %r2;", {0: 9, 4: 9}),
    ("st.release.gpu.global.u32 [%rd1+4], 8; ld.acquire.gpu.global.u32 %r2, [%rd1+4]; st.global.u32 [%rd1+16], %r2;",
     {1: 8, 4: 8}),
    ("ld.relaxed.gpu.global.v2.u64 {%rd2, %rd3}, [%rd1]; st.global.u64 [%rd1+16], %rd3;", {4: 3, 5: 4}),
    ("mov.u32 %r2, 16; cp.async.bulk.prefetch.L2.global [%rd1+16], %r2; "
     "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd1], 32, %rd2;", {}),
    ("prefetch.global.L2 [%rd1]; nanosleep.u32 32; fence.acq_rel.gpu; fence.proxy.async; "
     "fence.proxy.async.shared::cta; "
     "fence.mbarrier_init.release.cluster; createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0; "
     "createpolicy.fractional.L2::evict_last.b64 %rd2, 1.0; bar.sync 0; bar.warp.sync -1;", {}),
    ("mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.s32 %r2, %r2, %r3; cp.async.ca.shared.global [%r2], [%rd1], 8; "
     "cp.async.cg.shared.global [%r2], [%rd1], 16, 4; cp.async.commit_group; cp.async.wait_group 0; "
     "ld.shared.v2.u32 {%r4, %r5}, [%r2]; st.global.v2.u32 [%rd1+16], {%r4, %r5};", {4: 0x80FF7F01, 5: 0}),
    # A phase is over when one thread has arrived, 16 bytes are expected, and they have come.
    ("mov.u32 %r2, tile; mov.u64 %rd3, 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra wait; "
     "mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; "
     "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r2], 16; add.s32 %r3, %r2, 16;"
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r3], [%rd1], 16, [%r2], %rd3;"
     "wait: bar.sync 0; again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r2], 0, 1000; "
     "@!%p2 bra.uni again; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2+16]; st.global.u32 [%rd1+16], %r7;", {4: 4}),
    ("mov.u32 %r2, tile; setp.ne.u32 %p1, %r1, 0; @%p1 bra over; mbarrier.init.shared::cta.b64 [%r2], 2;"
     "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r2]; "
     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r2], 0, 1; selp.u32 %r3, 1, 0, %p2; "
     "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r2]; st.global.u32 [%rd1], %r3; "
     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r2], 0, 1; selp.u32 %r4, 1, 0, %p3; "
     "st.global.u32 [%rd1+4], %r4; over: bar.sync 0;", {0: 0, 1: 1}),
    # A phase of 32 arrivals is over when the copies of all lanes have landed: the neighbor's is there, too.
    (COPIED.format(count=32, inc=".noinc") + POLL +
     "xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4+16]; st.global.u32 [%rd1+16], %r5;", {4: 4}),
    # Without noinc the phase takes each such arrival beside the one that it counts: after 32 of them it is not over.
    (COPIED.format(count=1, inc="") + "cp.async.wait_all; bar.sync 0; nanosleep.u32 32; "
     "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r2], 0; selp.u32 %r4, 7, 6, %p2; "
     "st.global.u32 [%rd1], %r4; setp.ne.u32 %p1, %r1, 0; @%p1 bra again; "
     "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r2]; "
     + POLL + "st.global.u32 [%rd1+4], 5;", {0: 6, 1: 5}),
    ("mov.u32 %r2, 0; mov.u32 %r3, 0; again: add.s32 %r2, %r2, %r3; add.s32 %r3, %r3, 1; setp.le.s32 %p1, %r3, 4; "
     "@%p1 bra again; st.global.u32 [%rd1], %r2;", {0: 10}),
)  # fmt: skip
# (instructions that make %r3 of the lane %r1, the lane's value)
LANES = (
    ("shfl.sync.bfly.b32 %r3, %r1, 5, 31, -1;", lambda lane: lane ^ 5),
    ("shfl.sync.up.b32 %r3, %r1, 2, 0, -1;", lambda lane: lane - 2 if lane >= 2 else lane),
    ("shfl.sync.down.b32 %r3, %r1, 2, 31, -1;", lambda lane: lane + 2 if lane < 30 else lane),
    ("shfl.sync.idx.b32 %r3, %r1, 3, 6175, -1;", lambda lane: lane // 8 * 8 + 3),  # 0x181f: segments of 8
    ("shfl.sync.down.b32 %r2|%p1, %r1, 1, 6175, -1; selp.u32 %r3, %r2, 99, %p1;",
     lambda lane: 99 if lane % 8 == 7 else lane + 1),
    ("and.b32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 0; vote.sync.ballot.b32 %r3, %p1, -1;", lambda lane: 0xAAAAAAAA),
    ("setp.lt.u32 %p1, %r1, 31; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r3, 1, 0, %p2;", lambda lane: 0),
    ("setp.lt.u32 %p1, %r1, 1; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r3, 1, 0, %p2;", lambda lane: 1),
    ("redux.sync.add.s32 %r3, %r1, -1;", lambda lane: 496),
    ("shr.u32 %r2, %r1, 3; match.any.sync.b32 %r3, %r2, -1;", lambda lane: 0xFF << lane // 8 * 8),
    ("elect.sync %r2|%p1, -1; selp.u32 %r3, 1, 0, %p1;", lambda lane: int(lane == 0)),
    ("activemask.b32 %r3;", lambda lane: LOW),
    # Members come with an equal mask: the upper half waits for the second vote of the lower one, or its third barrier.
    ("setp.gt.u32 %p1, %r1, 15; selp.u32 %r2, 1, 0, %p1; again: setp.eq.u32 %p2, %r2, 1; selp.u32 %r4, -1, 65535, %p2; "
     "vote.sync.ballot.b32 %r3, %p2, %r4; add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 2; @%p3 bra again;",
     lambda lane: LOW),
    ("setp.gt.u32 %p1, %r1, 15; @%p1 bra all; setp.gt.u32 %p2, %r1, 7; @%p2 bra high; bar.warp.sync 65535; bra all; "
     "high: bar.warp.sync 65535; all: bar.warp.sync -1; vote.sync.ballot.b32 %r3, %p1, -1;", lambda lane: 0xFFFF0000),
)  # fmt: skip


@pytest.mark.parametrize(("body", "after"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_memory_is_what_the_isa_says(machine, body, after, seed):  # noqa: F811
    words = (ctypes.c_uint32 * 64)(*GIVEN)
    assert run(machine, body, words, seed).report == ""
    assert list(words[:6]) == [after.get(at, value) for at, value in enumerate((*GIVEN, 0, 0))]


@pytest.mark.parametrize(("body", "value"), LANES, ids=[row[0][:30] for row in LANES])
def test_lanes_get_what_the_isa_says(machine, body, value):  # noqa: F811
    words = (ctypes.c_uint32 * 32)()
    store = "mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r3;"
    assert run(machine, body + store, words).status == FINISHED
    assert list(words) == [value(lane) for lane in range(32)]


def test_half_of_a_named_barrier_does_not_wait(machine, seed):  # noqa: F811
    body = """setp.lt.u32 %p1, %r1, 32; @%p1 bra first;
    bar.sync 1, 64; ld.shared.u32 %r2, [tile]; st.global.u32 [%rd1], %r2; bra.uni end;
    first: st.shared.u32 [tile], 5; bar.arrive 1, 64; end: """
    words = (ctypes.c_uint32 * 4)()
    assert run(machine, body, words, seed, threads=64, races=True).report == ""
    assert words[0] == 5


@pytest.mark.parametrize(
    ("count", "inc", "after", "report"),
    [
        (16, ".noinc", "", "more arrivals than the mbarrier's phase takes"),
        (33, ".noinc", POLL, "polls"),  # one is missing
        (32, ".noinc", "", "no thread has waited for this copy"),
        (32, ".noinc", "ld.shared.u32 %r4, [%r3+16];", "nothing orders this read"),
        (32, ".noinc", f"xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4+16]; {POLL}", "nothing orders this read"),
        (32, ".noinc", f"{POLL} cp.async.ca.shared.global [%r3+16], [%rd1], 4;", "in flight"),
        (32, ".noinc", f"{POLL} xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4+16]; st.shared.u32 [%r3+16], 0;",
         "nothing orders this write"),
    ],
)  # fmt: skip
def test_a_wrong_use_of_copies_that_arrive_is_found(machine, count, inc, after, report, seed):  # noqa: F811
    body = COPIED.format(count=count, inc=inc) + after
    assert report in run(machine, body, (ctypes.c_uint32 * 64)(*GIVEN), seed, races=True).report


@pytest.mark.parametrize(("read", "said"), [(8, ""), (9, "outside the buffers")])
def test_a_copy_reads_only_the_bytes_that_it_names(machine, read, said):  # noqa: F811
    body = f"""mov.u32 %r2, tile; cp.async.cg.shared.global [%r2], [%rd1+16], 16, {read}; cp.async.wait_all;
    ld.shared.u32 %r4, [%r2+4]; ld.shared.u32 %r5, [%r2+8]; st.global.v2.u32 [%rd1], {{%r4, %r5}};"""
    words = (ctypes.c_uint32 * 6)(1, 2, 3, 4, 5, 6)  # 8 bytes behind the last 16
    assert run(machine, body, words, threads=1).report.partition(":")[0] == said
    assert words[:2] == ([1, 2] if said else [6, 0])


def test_trap_stops_the_launch(machine):  # noqa: F811
    assert run(machine, "trap;", (ctypes.c_uint32 * 4)()).status == TRAPPED


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_gives_lanes_the_words_of_rows_or_columns(machine, trans):  # noqa: F811
    body = f"""mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.s32 %r3, %r3, %r2; mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd3, %rd1, %rd2; ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd3];
    st.shared.v4.u32 [%r3], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r3];
    st.global.v4.u32 [%rd3], {{%r4, %r5, %r6, %r7}};"""
    words = (ctypes.c_uint16 * 256)(*range(256))
    assert run(machine, body, words).status == FINISHED
    matrices = np.arange(256).reshape(4, 8, 8)
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        rows = matrices.transpose(0, 2, 1) if trans else matrices
        wanted = [rows[number, row, column + half] for number in range(4) for half in range(2)]
        assert list(words[8 * lane : 8 * lane + 8]) == wanted

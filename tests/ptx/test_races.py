"""The race detector of the PTX device on kernels of a few lines: found with any schedule, and none where PTX orders."""

import ctypes

import pytest
from test_opcodes import machine, run  # noqa: F401

from common.devices.ptx.report import FINISHED, RACED

ADDED = """setp.ne.u32 %p1, %r3, 0; @%p1 bra over; {add} %r4, [%rd1], 1; setp.ne.u32 %p1, %r4, 1; @%p1 bra over;
st.global.u32 [%rd1], 0; over:"""
POLLED = """setp.lt.u32 %p1, %r1, 32; @%p1 bra writes; again: ld.relaxed.gpu.global.u32 %r4, [%rd1];
setp.eq.u32 %p2, %r4, 0; @%p2 bra again; {meet} bra end;
writes: st.relaxed.gpu.global.u32 [%rd1], 1; {meet} st.global.u32 [%rd1], 2; end:"""
SEEN = POLLED.format(meet="{meet}").replace("writes:", "writes: setp.ne.u32 %p3, %r3, 0; @%p3 bra end;")
ARRIVED = """setp.lt.u32 %p1, %r1, 32; @%p1 bra first; bar.sync 1, 64; ld.shared.u32 %r4, [tile]; bra end;
first: {before} bar.arrive 1, 64; {after} end:"""
EXCHANGED = """mul.wide.u32 %rd2, %r1, 4; mov.u64 %rd3, tile; add.s64 %rd4, %rd3, %rd2;
st.shared.u32 [%rd4], %r1; {meet}
xor.b32 %r2, %r1, 32; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd3, %rd5; ld.shared.u32 %r4, [%rd6];
add.s64 %rd7, %rd1, %rd2; st.global.u32 [%rd7], %r4;"""


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("body", "ordered"),
    [
        (EXCHANGED.format(meet="bar.sync 0;"), True),
        (EXCHANGED.format(meet=""), False),
        (ADDED.format(add="atom.add.acq_rel.gpu.global.u32"), True),
        (ADDED.format(add="atom.add.relaxed.gpu.global.u32"), True),  # its own addition has read the other one's
        (ADDED.replace("%r4, 1;", "%r4, 0;").format(add="atom.add.relaxed.gpu.global.u32"), False),
        (ADDED.format(add="atom.add.acq_rel.cta.global.u32"), True),
        (ARRIVED.format(before="st.shared.u32 [tile], 5;", after=""), True),
        (ARRIVED.format(before="", after="st.shared.u32 [tile], 5;"), False),
        (SEEN.replace("st.global.u32 [%rd1], 2;", "").format(meet="ld.global.u32 %r5, [%rd1];"), True),
        (SEEN.format(meet="ld.global.u32 %r5, [%rd1];"), False),  # the second store
        (POLLED.format(meet="bar.sync 0;"), True),
        (POLLED.format(meet=""), False),  # the strong read of a word that a strong write has changed since
    ],
)
def test_what_nothing_orders_is_found(machine, body, ordered, seed):  # noqa: F811
    words = (ctypes.c_uint64 * 64)()
    ended = run(machine, "and.b32 %r3, %r1, 31;" + body, words, seed=seed, threads=64, races=True)
    assert (ended.status, "nothing orders" in ended.report) == ((FINISHED, False) if ordered else (RACED, True))


@pytest.mark.cpu
def test_a_copy_that_nobody_has_waited_for_is_found_though_it_may_have_landed(machine, seed):  # noqa: F811
    body = """mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 32, %r2; cp.async.ca.shared.global [%r2], [%rd1], 16;
    cp.async.commit_group; cp.async.ca.shared.global [%r2+16], [%rd1], 16; cp.async.commit_group;
    ld.shared.u32 %r3, [%r2]; cp.async.wait_group 0;"""
    ended = run(machine, body, (ctypes.c_uint64 * 4)(), seed=seed, races=True)
    assert (ended.status, "is still copying" in ended.report) == (RACED, True)


# Block 0 executes the first part, block 1 the second one; `other` is its begin.
TWO = "mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra other; {} ret; other: {}"
SENT = "st.global.u32 [%rd1+64], 5; {} st.relaxed.gpu.global.u32 [%rd1], 1;"
AWAITED = """ld.{}.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p2, %r3, 1; @%p2 bra other; {}
ld.global.u32 %r4, [%rd1+64];"""
ADDED_THEN_READ = "red.relaxed.gpu.global.add.u32 [%rd1], 0; fence.acq_rel.gpu; ld.global.u32 %r4, [%rd1+64];"
LOOK, FILL = "ld.relaxed.gpu.global.u32 %r3, [%rd1];", "st.relaxed.gpu.global.u32 [%rd1], 1;"


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("first", "second", "ordered"),
    [
        (f"st.global.u32 [%rd1], 0; {FILL}", LOOK, False),  # the second store does not make up for the first one
        (f"st.relaxed.cta.global.u32 [%rd1], 0; {FILL}", LOOK, False),
        (f"{LOOK.replace('gpu', 'cta')} st.global.u32 [%rd1+64], 5; {LOOK}", FILL, False),
        (SENT.format("st.release.gpu.global.u32 [%rd1], 3;"), AWAITED.format("acquire", ""), True),  # a release pattern
        (SENT.format("fence.release.gpu;"), AWAITED.format("relaxed", "fence.acquire.gpu;"), True),
        (SENT.format("fence.acquire.gpu;"), AWAITED.format("relaxed", "fence.acquire.gpu;"), False),
        (SENT.format("fence.sc.gpu;"), AWAITED.format("relaxed", "fence.release.gpu;"), False),
        (SENT.format("membar.gl;"), AWAITED.format("relaxed", "membar.gl;"), True),
        (SENT.format("membar.cta;"), AWAITED.format("relaxed", "membar.gl;"), False),
        (SENT.format("membar.gl;"), ADDED_THEN_READ, False),  # a reduction is no read of an acquire pattern
    ],
)
def test_what_orders_two_blocks(machine, first, second, ordered, seed):  # noqa: F811
    words = (ctypes.c_uint32 * 32)()
    ended = run(machine, TWO.format(first, second), words, seed=seed, threads=1, blocks=2, races=True)
    assert (ended.status, "nothing orders" in ended.report) == ((FINISHED, False) if ordered else (RACED, True))


@pytest.mark.cpu
def test_a_store_of_what_is_there_races_with_a_read(machine, seed):  # noqa: F811
    body = """and.b32 %r3, %r1, 31; setp.ne.u32 %p1, %r3, 0; @%p1 ret; setp.ne.u32 %p2, %r1, 0;
    @%p2 ld.shared.u32 %r4, [tile]; @!%p2 ld.shared.u32 %r4, [tile]; @%p2 st.shared.u32 [tile], %r4;"""
    ended = run(machine, body, (ctypes.c_uint64 * 4)(), seed=seed, threads=64, races=True)
    assert (ended.status, "nothing orders" in ended.report) == (RACED, True)


@pytest.mark.cpu
@pytest.mark.parametrize("fence", ["acq_rel", "sc", "acquire", "release"])
def test_one_fence_hands_on_what_it_has_acquired(machine, fence, seed):  # noqa: F811
    body = f"""mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 1; @%p1 bra middle; setp.eq.u32 %p1, %r2, 2; @%p1 bra last;
    st.global.u32 [%rd1+64], 5; st.release.gpu.global.u32 [%rd1], 1; ret;
    middle: ld.relaxed.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p2, %r3, 1; @%p2 bra middle;
    fence.{fence}.gpu; st.relaxed.gpu.global.u32 [%rd1+32], 1; ret;
    last: ld.acquire.gpu.global.u32 %r3, [%rd1+32]; setp.ne.u32 %p2, %r3, 1; @%p2 bra last;
    ld.global.u32 %r4, [%rd1+64];"""
    ended = run(machine, body, (ctypes.c_uint32 * 32)(), seed=seed, threads=1, blocks=3, races=True)
    assert ended.status == (FINISHED if fence in ("acq_rel", "sc") else RACED)


@pytest.mark.cpu
@pytest.mark.parametrize(("meet", "ordered"), [("bar.warp.sync -1;", False), ("bar.sync 0;", True)])
def test_threads_that_store_one_value_are_all_its_writers(machine, meet, ordered, seed):  # noqa: F811
    """The first lane of each of two warps stores; the second one of the first warp reads."""
    body = f"""and.b32 %r3, %r1, 31; setp.ne.u32 %p1, %r3, 0; @!%p1 st.shared.u32 [tile], 7; {meet}
    setp.eq.u32 %p2, %r1, 1; @%p2 ld.shared.u32 %r4, [tile];"""
    ended = run(machine, body, (ctypes.c_uint64 * 4)(), seed=seed, threads=64, races=True)
    assert (ended.status, "nothing orders" in ended.report) == ((FINISHED, False) if ordered else (RACED, True))


@pytest.mark.cpu
def test_a_block_knows_its_own_release_behind_a_sum_of_another_block(machine, seed):  # noqa: F811
    """A fence of its scope and an atomic sum, then a thread of the block that sees both blocks' sums."""
    body = """mov.u32 %r2, %ctaid.x; and.b32 %r3, %r1, 31; setp.ne.u32 %p1, %r3, 0; @%p1 ret; add.u32 %r3, %r2, %r1;
    setp.eq.u32 %p1, %r3, 32; @%p1 bra waits; setp.eq.u32 %p1, %r3, 0; @%p1 st.global.u32 [%rd1+64], 1;
    fence.acq_rel.cta; red.relaxed.gpu.global.add.u32 [%rd1], 1; ret;
    waits: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p2, %r3, 3; @%p2 bra waits;
    ld.global.u32 %r4, [%rd1+64];"""
    ended = run(machine, body, (ctypes.c_uint32 * 32)(), seed=seed, threads=64, blocks=2, races=True)
    assert (ended.status, ended.report) == (FINISHED, "")


@pytest.mark.cpu
@pytest.mark.parametrize("order", ["relaxed", "acquire"])
def test_an_mbarrier_is_made_by_a_write(machine, order, seed):  # noqa: F811
    """Another thread stores there when it has gone again, as a flag says."""
    body = f"""mov.u32 %r2, tile; setp.ne.u32 %p1, %r1, 0; @!%p1 st.relaxed.cta.shared.u32 [tile+64], 0; bar.sync 0;
    @%p1 bra other; mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.inval.shared::cta.b64 [%r2];
    st.release.cta.shared.u32 [tile+64], 1; ret; other: setp.ne.u32 %p2, %r1, 32; @%p2 ret;
    again: ld.{order}.cta.shared.u32 %r3, [tile+64]; setp.ne.u32 %p2, %r3, 1; @%p2 bra again;
    st.shared.u32 [tile], 1;"""
    ended = run(machine, body, (ctypes.c_uint32 * 4)(), seed=seed, threads=64, races=True)
    assert (ended.status == FINISHED, "nothing orders" in ended.report) == (order == "acquire", order != "acquire")

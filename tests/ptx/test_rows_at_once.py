"""Rows and lanes that the machine takes at once give what they give one by one."""

import ctypes
import os
import random

import pytest
from test_opcodes import machine, run  # noqa: F401

from common.devices.ptx.report import FINISHED

pytestmark = pytest.mark.cpu
SPECIAL = (0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 0x00000001, 0x80000000, 0x00800000, 0x7F7FFFFF)


def number(draw: random.Random) -> int:
    """Bits of a number of fp32, and of two of bf16, with a magnitude from 1 to 2."""
    return (
        0x3F803F80
        | draw.getrandbits(1) << 31
        | draw.getrandbits(7) << 16
        | draw.getrandbits(1) << 15
        | draw.getrandbits(7)
    )


def products(first: int) -> str:
    """Two words of bf16 by four numbers, added to %r13 in %r29."""
    text, before = "", "%r13"
    for word in range(2):
        low, high = f"%r{first + 4 * word}", f"%r{first + 4 * word + 2}"
        after = "%r29" if word else f"%r{first + 4 * word + 3}"
        text += f"""shl.b32 {low}, %r{14 + word}, 16;
        fma.rn.ftz.f32 %r{first + 4 * word + 1}, {low}, %r{16 + 2 * word}, {before};
        and.b32 {high}, %r{14 + word}, -65536;
        fma.rn.ftz.f32 {after}, {high}, %r{17 + 2 * word}, %r{first + 4 * word + 1};
        """
        before = after
    return text


def listed(first: int, count: int) -> str:
    return f"{{{', '.join(f'%r{first + at}' for at in range(count))}}}"


@pytest.mark.parametrize("lanes", [0x55555555, 0x0000FFFF, 0x80000001])
def test_products_and_places_of_all_lanes_are_those_of_some_lanes(machine, lanes, seed):  # noqa: F811
    """All lanes take the rows as one; lanes that a branch has parted take them one by one."""
    draw = random.Random(seed)
    given = [draw.choice(SPECIAL) if draw.random() < 0.02 else number(draw) for _ in range(7 * 32)]
    loads = "".join(f"ld.global.u32 %r{13 + at}, [%rd4+{128 * at}];\n" for at in range(7))
    computed = products(40) + "add.s64 %rd5, %rd3, %rd2; shl.b64 %rd6, %rd5, 3; add.s64 %rd7, %rd1, %rd6;"
    results = []
    for taken in (0xFFFFFFFF, lanes):
        words = (ctypes.c_uint32 * (14 * 32))(*given)
        body = f"""shl.b32 %r10, %r1, 2; cvt.u64.u32 %rd2, %r10; add.s64 %rd4, %rd1, %rd2;
        mov.u64 %rd3, 96;
        {loads} mov.u32 %r11, {taken}; shr.u32 %r12, %r11, %r1; and.b32 %r30, %r12, 1; setp.eq.u32 %p1, %r30, 0;
        @%p1 bra after;
        {computed} sub.s64 %rd8, %rd7, %rd1; st.global.u32 [%rd4+896], %r29; add.s64 %rd8, %rd4, %rd2;
        sub.s64 %rd2, %rd7, %rd1; st.global.u64 [%rd8+1024], %rd2;
        after:"""
        assert run(machine, body, words).status == FINISHED
        results.append(words)
    whole, some = results
    for lane in range(32):
        if lanes >> lane & 1:
            assert whole[224 + lane] == some[224 + lane]
            assert whole[256 + 2 * lane] == some[256 + 2 * lane] == (96 + 4 * lane) * 8


@pytest.mark.parametrize("words", [2, 4])
@pytest.mark.parametrize("distance", [1, 2])
def test_products_of_loaded_words_of_all_lanes_are_those_of_some_lanes(machine, words, distance, seed):  # noqa: F811
    """Words in global memory, factors in shared memory; these lie in a row if the distance of two lanes is 1."""
    draw, lanes = random.Random(seed), 0x7FFF00FF
    given = [draw.choice(SPECIAL) if draw.random() < 0.02 else number(draw) for _ in range(32 * words + 512)]
    stored = "".join(
        f"ld.global.u32 %r9, [%rd4+{128 * (words + at)}]; st.shared.u32 [%r8+{128 * at}], %r9;\n" for at in range(16)
    )
    loads = f"ld.global.v{words}.u32 {listed(10, words)}, [%rd5];" + "".join(
        f"ld.shared.v4.u32 {listed(14 + 4 * at, 4)}, [%r7+{16 * at}];" for at in range(words // 2)
    )
    text, before = "", "%r2"
    for word in range(words):
        first, last = 24 + 4 * word, "%r60" if word == words - 1 else f"%r{27 + 4 * word}"
        text += f"""shl.b32 %r{first}, %r{10 + word}, 16;
        fma.rn.ftz.f32 %r{first + 1}, %r{first}, %r{14 + 2 * word}, {before};
        and.b32 %r{first + 2}, %r{10 + word}, -65536;
        fma.rn.ftz.f32 {last}, %r{first + 2}, %r{15 + 2 * word}, %r{first + 1};
        """
        before = last
    results = []
    for taken in (0xFFFFFFFF, lanes):
        memory = (ctypes.c_uint32 * (len(given) + 32))(*given)
        body = f"""mul.wide.u32 %rd2, %r1, 4; add.s64 %rd4, %rd1, %rd2; mov.u32 %r3, tile; shl.b32 %r4, %r1, 2;
        mul.wide.u32 %rd3, %r1, {4 * words}; add.s64 %rd5, %rd1, %rd3; add.s32 %r8, %r3, %r4;
        {stored} bar.sync 0; mul.lo.s32 %r5, %r1, {8 * words * distance}; add.s32 %r7, %r3, %r5;
        mov.u32 %r2, 0x3f800000; shr.u32 %r6, {taken}, %r1; and.b32 %r6, %r6, 1; setp.eq.u32 %p1, %r6, 0;
        @%p1 bra after;
        {loads} {text} st.global.u32 [%rd4+{4 * len(given)}], %r60;
        after:"""
        assert run(machine, body, memory).status == FINISHED
        results.append(memory[len(given) :])
    whole, some = results
    assert [whole[lane] for lane in range(32) if lanes >> lane & 1] == [each for each in some if each]


@pytest.mark.parametrize("by", [1, 2, 4, 8, 16])
def test_a_shuffle_and_its_sum_are_those_of_two_rows(machine, by, seed):  # noqa: F811
    """The sum of the shuffled value first is none of the sequences that are executed as one."""
    draw = random.Random(seed)
    words = (ctypes.c_uint32 * 96)(*(draw.choice(SPECIAL) if draw.random() < 0.1 else number(draw) for _ in range(32)))
    body = f"""mul.wide.u32 %rd2, %r1, 4; add.s64 %rd4, %rd1, %rd2; ld.global.u32 %r2, [%rd4];
    shfl.sync.bfly.b32 %r3|%p1, %r2, {by}, 31, -1; add.ftz.f32 %r4, %r2, %r3; st.global.u32 [%rd4+128], %r4;
    shfl.sync.bfly.b32 %r5|%p2, %r2, {by}, 31, -1; add.ftz.f32 %r6, %r5, %r2; st.global.u32 [%rd4+256], %r6;"""
    assert run(machine, body, words).status == FINISHED
    assert words[32:64] == words[64:96]
    assert words[32:64] != words[:32]


@pytest.mark.parametrize("vector", [1, 2, 4])
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("place", [lambda i: i, lambda i: 5, lambda i: 31 - i, lambda i: 7 * i % 32, lambda i: i // 2])
def test_a_load_and_a_store_find_their_lanes_places(machine, place, space, vector, seed):  # noqa: F811
    """words: what is read, 32 places of a vector; then where each lane reads and writes; then what is written."""
    draw = random.Random(seed)
    given = [draw.getrandbits(32) for _ in range(32 * vector)]
    words = (ctypes.c_uint32 * (128 + 32 + 128))(*given)
    words[128:160] = [4 * vector * place(lane) for lane in range(32)]
    registers = [f"%r{10 + at}" for at in range(vector)]
    listed = f"{{{', '.join(registers)}}}" if vector > 1 else registers[0]
    kind = {1: "u32", 2: "v2.u32", 4: "v4.u32"}[vector]
    own = f"mul.wide.u32 %rd3, %r1, {4 * vector}; add.s64 %rd4, %rd1, %rd3;"
    if space == "global":
        move = f"ld.global.{kind} {listed}, [%rd5]; st.global.{kind} [%rd5+640], {listed};"
    else:
        move = f"""ld.global.{kind} {listed}, [%rd4]; mov.u32 %r20, tile; cvt.u32.u64 %r21, %rd3;
        add.s32 %r22, %r20, %r21; st.shared.{kind} [%r22], {listed}; bar.sync 0; add.s32 %r23, %r20, %r8;
        ld.shared.{kind} {listed}, [%r23]; st.shared.{kind} [%r23+512], {listed}; bar.sync 0;
        ld.shared.{kind} {listed}, [%r22+512]; st.global.{kind} [%rd4+640], {listed};"""
    body = f"""mul.wide.u32 %rd2, %r1, 4; add.s64 %rd6, %rd1, %rd2; ld.global.u32 %r8, [%rd6+512];
    cvt.u64.u32 %rd7, %r8; add.s64 %rd5, %rd1, %rd7; {own} {move}"""
    assert run(machine, body, words).status == FINISHED
    for at in {place(lane) for lane in range(32)}:
        assert words[160 + vector * at : 160 + vector * (at + 1)] == given[vector * at : vector * (at + 1)]


def test_a_long_loop_needs_no_more_stack_than_a_short_one(machine):  # noqa: F811
    """Each function of the machine ends with a jump: one that called the next would run out of stack here."""
    rows = (
        """ld.shared.u32 %r3, [%r2]; st.shared.v2.u32 [%r2], {%r3, %r3}; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
    ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2]; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];
    bar.warp.sync -1; cvt.rn.f32.s32 %r3, %r3; vote.sync.all.pred %p3, %p1, -1;"""
        * 8
    )
    body = f"""mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.s32 %r2, %r2, %r3; mov.u32 %r7, 0;
    st.shared.v4.u32 [%r2], {{0, 0, 0, 0}}; setp.eq.u32 %p1, %r7, 0;
    again: {rows} add.s32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 3000; @%p2 bra again;"""
    child = os.fork()
    if child == 0:
        os._exit(run(machine, body, (ctypes.c_uint64 * 4)(), strict=False).status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == FINISHED

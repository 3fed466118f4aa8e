"""Products of matrices beyond bf16 and f32 sums, on the PTX device, against NumPy: small integers, which are exact."""

import ctypes

import numpy as np
import pytest
from test_opcodes import machine, run  # noqa: F401

from common.devices.ptx.report import FINISHED

pytestmark = pytest.mark.cpu
TYPES = {"f16": np.float16, "f32": np.float32, "s8": np.int8, "u8": np.uint8, "s32": np.int32, "tf32": np.float32}


def drawn(seed, *shapes):
    """Matrices of whole numbers from 0 to 7."""
    random = np.random.default_rng(seed)
    return [random.integers(0, 8, shape) for shape in shapes]


@pytest.mark.parametrize(
    ("shape", "kind", "sums", "layouts"),
    [
        ("m16n16k16", "f16", "f32", ("row", "col")),
        ("m32n8k16", "f16", "f16", ("col", "row")),
        ("m8n32k16", "u8", "s32", ("row", "col")),
        ("m16n16k8", "tf32", "f32", ("row", "row")),
    ],
)
def test_wmma_multiplies_matrices_in_memory(machine, shape, kind, sums, layouts, seed):  # noqa: F811
    m, n, k = map(int, shape[1:].replace("n", " ").replace("k", " ").split())
    a, b, c = drawn(seed, (m, k), (k, n), (m, n))
    counts = [size // 32 // (4 // np.dtype(TYPES[kind]).itemsize) for size in (m * k, k * n)]
    counts = [8, 8] if kind == "f16" else counts
    sum_count = m * n // 32 // (2 if sums == "f16" else 1)
    registers = [
        ", ".join(f"%{name}{at}" for at in range(size)) for name, size in zip("abc", (*counts, sum_count), strict=True)
    ]
    both = f"{sums}.{sums}" if kind == "f16" else f"{sums}.{kind}.{kind}.{sums}"
    left, right = layouts
    memory = [
        np.asfortranarray(a) if left == "col" else a, np.asfortranarray(b) if right == "col" else b, c, np.zeros_like(c)
    ]  # fmt: skip
    parts = [each.ravel(order="K").astype(TYPES[kind if at < 2 else sums]).tobytes() for at, each in enumerate(memory)]
    words = (ctypes.c_uint8 * 4096)()
    ctypes.memmove(words, b"".join(part.ljust(1024, b"\0") for part in parts), 4096)
    step = k if left == "row" else m
    body = f"""wmma.load.a.sync.aligned.{left}.{shape}.global.{kind} {{{registers[0]}}}, [%rd1], {step};
    wmma.load.b.sync.aligned.{right}.{shape}.global.{kind} {{{registers[1]}}}, [%rd1+1024];
    wmma.load.c.sync.aligned.row.{shape}.global.{sums} {{{registers[2]}}}, [%rd1+2048], {n};
    wmma.mma.sync.aligned.{left}.{right}.{shape}.{both} {{{registers[2]}}}, {{{registers[0]}}}, {{{registers[1]}}},
    {{{registers[2]}}}; wmma.store.d.sync.aligned.row.{shape}.global.{sums} [%rd1+3072], {{{registers[2]}}}, {n};"""
    declared = ".reg .b32 %a<16>; .reg .b32 %b<16>; .reg .b32 %c<16>; "
    assert run(machine, declared + body, words, races=True).status == FINISHED
    made = np.frombuffer(bytes(words[3072 : 3072 + m * n * np.dtype(TYPES[sums]).itemsize]), TYPES[sums])
    assert np.array_equal(made.reshape(m, n), a @ b + c)


def test_mma_of_bytes_saturates(machine, seed):  # noqa: F811
    """m16n8k32: a word holds four numbers of K, then as for 16-bit numbers."""
    random = np.random.default_rng(seed)
    a, b = random.integers(-128, 128, (16, 32)), random.integers(0, 256, (32, 8))
    c = random.integers(-100, 100, (16, 8))
    c[3, 4] = np.iinfo(np.int32).max
    a[3], b[:, 4] = 127, 255
    memory = np.zeros((32, 10), np.uint32)
    for lane in range(32):
        g, q = lane // 4, 4 * (lane % 4)
        places = ((g, q), (g + 8, q), (g, q + 16), (g + 8, q + 16))
        rows = [a[row, at : at + 4].astype(np.int8) for row, at in places]
        columns = [b[at : at + 4, g].astype(np.uint8) for at in (q, q + 16)]
        memory[lane, :6] = [np.frombuffer(each.tobytes(), np.uint32)[0] for each in (*rows, *columns)]
        memory[lane, 6:] = np.array([*c[g, q // 2 :][:2], *c[g + 8, q // 2 :][:2]], np.int32).view(np.uint32)
    body = """mul.wide.u32 %rd2, %r1, 40; add.s64 %rd3, %rd1, %rd2; ld.global.v2.u32 {%r2, %r3}, [%rd3];
    ld.global.v2.u32 {%r4, %r5}, [%rd3+8]; ld.global.v2.u32 {%r6, %r7}, [%rd3+16];
    ld.global.v2.u32 {%r8, %r9}, [%rd3+24]; ld.global.v2.u32 {%r10, %r11}, [%rd3+32];
    mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r8, %r9, %r10, %r11}, {%r2, %r3, %r4, %r5}, {%r6, %r7},
    {%r8, %r9, %r10, %r11}; st.global.v2.u32 [%rd3+24], {%r8, %r9}; st.global.v2.u32 [%rd3+32], {%r10, %r11};"""
    words = (ctypes.c_uint32 * memory.size)(*memory.ravel().tolist())
    assert run(machine, body, words).status == FINISHED
    made = np.array(words, np.uint32).view(np.int32).reshape(32, 10)[:, 6:]
    wanted = np.minimum(a @ b + c, np.iinfo(np.int32).max)
    for lane in range(32):
        g, q = lane // 4, lane % 4 * 2
        assert made[lane].tolist() == [*wanted[g, q : q + 2], *wanted[g + 8, q : q + 2]]


def test_mma_with_sums_in_f16(machine, seed):  # noqa: F811
    """m16n8k8: its sums are two words, of the rows g and g + 8."""
    a, b, c = drawn(seed, (16, 8), (8, 8), (16, 8))
    memory = np.zeros((32, 10), np.float16)
    for lane in range(32):
        g, q = lane // 4, lane % 4 * 2
        pairs = a[g, q : q + 2], a[g + 8, q : q + 2], b[q : q + 2, g], c[g, q : q + 2], c[g + 8, q : q + 2]
        memory[lane] = np.concatenate(pairs)
    body = """mul.wide.u32 %rd2, %r1, 20; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r2, [%rd3];
    ld.global.u32 %r3, [%rd3+4]; ld.global.u32 %r4, [%rd3+8]; ld.global.u32 %r5, [%rd3+12];
    ld.global.u32 %r6, [%rd3+16];
    mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r5, %r6}, {%r2, %r3}, {%r4}, {%r5, %r6};
    st.global.u32 [%rd3+12], %r5; st.global.u32 [%rd3+16], %r6;"""
    words = (ctypes.c_uint16 * memory.size)(*memory.view(np.uint16).ravel().tolist())
    assert run(machine, body, words).status == FINISHED
    made = np.array(words, np.uint16).view(np.float16).reshape(32, 10)[:, 6:]
    for lane in range(32):
        g, q = lane // 4, lane % 4 * 2
        assert made[lane].tolist() == [*(a @ b + c)[g, q : q + 2], *(a @ b + c)[g + 8, q : q + 2]]

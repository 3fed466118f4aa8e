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


def bits(values, kind):
    """The bytes of small whole numbers."""
    made = np.array(values, TYPES.get(kind, np.float32))
    return (made.view(np.uint32) >> 16).astype(np.uint16).tobytes() if kind == "bf16" else made.tobytes()


@pytest.mark.parametrize(
    ("depth", "kinds", "sums"),
    [(16, ("bf16", "bf16"), "f32"), (16, ("f16", "f16"), "f32"), (8, ("f16", "f16"), "f16"), (32, ("s8", "u8"), "s32")],
)
def test_mma_multiplies_the_parts_of_lanes(machine, depth, kinds, sums, seed):  # noqa: F811
    """A word holds 2 numbers of K, or 4 bytes; sums are those of the rows g and g + 8. Sums of integers saturate."""
    a, b, c = drawn(seed, (16, depth), (depth, 8), (16, 8))
    a, b = (36 * a - 126, 36 * b) if sums == "s32" else (a - 3, b - 3)
    if sums == "s32":
        a[3], b[:, 4], c[3, 4] = 127, 255, np.iinfo(np.int32).max
    word, steps = 4 if sums == "s32" else 2, range(0, depth, 16 if sums == "s32" else 8)
    memory = b""
    for lane in range(32):
        g, q = lane // 4, lane % 4
        columns = [slice(word * q + at, word * q + at + word) for at in steps]
        memory += b"".join(bits(a[row, at], kinds[0]) for at in columns for row in (g, g + 8))
        memory += b"".join(bits(b[at, g], kinds[1]) for at in columns)
        memory += b"".join(bits(c[row, 2 * q : 2 * q + 2], sums) for row in (g, g + 8))
    counts = 2 * len(steps), len(steps), 2 if sums == "f16" else 4
    registers = [
        f"{{{', '.join(f'%{name}{at}' for at in range(count))}}}" for name, count in zip("abc", counts, strict=True)
    ]
    each = [f"%{name}{at}" for name, count in zip("abc", counts, strict=True) for at in range(count)]
    left, right, total = registers
    loads = "".join(f"ld.global.u32 {name}, [%rd3+{4 * at}]; " for at, name in enumerate(each))
    stores = "".join(f"st.global.u32 [%rd3+{4 * at}], {name}; " for at, name in enumerate(each))
    kind = f"m16n8k{depth}.row.col.{'satfinite.' if sums == 's32' else ''}{sums}.{kinds[0]}.{kinds[1]}.{sums}"
    body = f""".reg .b32 %a<9>; .reg .b32 %b<9>; .reg .b32 %c<9>; mul.wide.u32 %rd2, %r1, {4 * len(each)};
    add.s64 %rd3, %rd1, %rd2; {loads} mma.sync.aligned.{kind} {total}, {left}, {right}, {total}; {stores}"""
    words = (ctypes.c_uint8 * len(memory))(*memory)
    assert run(machine, body, words).status == FINISHED
    wanted = np.minimum(a @ b + c, np.iinfo(np.int32).max)
    own = len(memory) // 32
    for lane in range(32):
        g, q = lane // 4, 2 * (lane % 4)
        made = bytes(words[own * lane : own * (lane + 1)])[4 * sum(counts[:2]) :]
        assert made == bits(wanted[[g, g, g + 8, g + 8], [q, q + 1, q, q + 1]], sums), lane


@pytest.mark.parametrize(("sums", "registers"), [("f32", 4), ("f16", 2)])
def test_subnormal_numbers_are_kept_in_a_product_only(machine, sums, registers):  # noqa: F811
    """The smallest accumulator, and a product of the next instruction, which flushes."""
    c = ", ".join(["%r46"] * registers)
    d = ", ".join(f"%r{30 + at}" for at in range(registers))
    zeros = "".join(f"mov.b32 %r{at}, 0; " for at in range(40, 46))
    body = f"""{zeros} mov.b32 %r46, 1; mov.b32 %r2, 0x00800000;
    mma.sync.aligned.m16n8k16.row.col.{sums}.f16.f16.{sums}
    {{{d}}}, {{%r40, %r41, %r42, %r43}}, {{%r44, %r45}}, {{{c}}};
    mul.rn.ftz.f32 %r3, %r2, 0f3F000000; st.global.v2.u32 [%rd1], {{%r30, %r3}};"""
    words = (ctypes.c_uint32 * 4)()
    assert run(machine, body, words).status == FINISHED
    assert list(words) == [1, 0, 0, 0]

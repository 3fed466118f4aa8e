"""Instructions on matrices: mma and wmma, and the loads and stores of their parts."""

import re

from common.devices.ptx.accesses import SPACES, memory
from common.devices.ptx.decode import Decoder
from common.devices.ptx.rows import ABSENT, Instruction, listed, unknown

KINDS = {"f16": 0, "bf16": 1, "tf32": 2, "f32": 3, "s8": 4, "u8": 5, "s32": 6}  # numbers in matrices.cpp
PER_WORD = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}  # numbers of a register; else one
FACTORS = (("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), *((a, b) for a in ("s8", "u8") for b in ("s8", "u8")))
SHAPES = {"f16": ("m16n16k16", "m32n8k16", "m8n32k16"), "tf32": ("m16n16k8",)}  # wmma's shapes
SHAPES |= dict.fromkeys(("bf16", "s8", "u8"), SHAPES["f16"])
MOVED = (("load", "a"), ("load", "b"), ("load", "c"), ("store", "d"))
QUICK = {"m16n8k16.bf16", "m16n8k8.bf16", "m16n8k16.f16", "m16n8k8.f16", "m16n8k8.tf32", "m16n8k4.tf32"}


def ldmatrix(d: Decoder, one: Instruction) -> None:
    to, where = one.operands
    places = [d.register(each, 4) for each in listed(to)]
    _matrices(d, one, where, places)


def stmatrix(d: Decoder, one: Instruction) -> None:
    where, source = one.operands
    _matrices(d, one, where, [d.value(each, "b32") for each in listed(source)])


def _matrices(d: Decoder, one: Instruction, where: str, places: list[int]) -> None:
    known = {"x1", "x2", "x4", "trans", *SPACES}
    if one.words[:3] != ("sync", "aligned", "m8n8") or one.type != "b16" or set(one.words[3:-1]) - known:
        raise unknown(one)
    if f"x{len(places)}" not in one.words:
        raise unknown(one, f" with {len(places)} registers")
    name = f"{one.opcode}.x{len(places)}" + (".trans" if "trans" in one.words else "")
    d.emit(name, **memory(d, one, where), more=places)


def mma(d: Decoder, one: Instruction) -> None:
    words = [each for each in one.words if each != "satfinite"]
    sync, aligned, shape, row, col, to, a, b, c = words
    m, n, k = sizes(shape)
    if (sync, aligned, row, col, m, n) != ("sync", "aligned", "row", "col", 16, 8) or (a, b) not in FACTORS:
        raise unknown(one)
    if f"{shape}.{a}" in QUICK and to == c == "f32":
        counts = m * k // 32 // PER_WORD.get(a, 1), k * n // 32 // PER_WORD.get(a, 1)
        places = [place for each in _registers(d, one, (4, *counts, 4)) for place in each]
        return d.emit(f"mma.{shape}.{a}", more=places)
    if k * 32 // PER_WORD.get(a, 1) not in (128, 256):  # bits of a row
        raise unknown(one)
    return _multiply(d, one, (m, n, k), (to, a, b, c), False)


def wmma(d: Decoder, one: Instruction) -> None:
    action = one.words[0]
    if action == "mma":
        words = [each for each in one.words[1:] if each not in ("sync", "aligned", "satfinite")]
        left, right, shape, to, *rest = words
        a, b, c = rest if len(rest) == 3 else ("f16", "f16", *rest)
        if {left, right} - {"row", "col"} or (a, b) not in FACTORS or shape not in SHAPES[a]:
            raise unknown(one)
        return _multiply(d, one, sizes(shape), (to, a, b, c), True)
    part, *words = [each for each in one.words[1:] if each not in ("sync", "aligned", *SPACES)]
    layout, shape, kind = words
    if (action, part) not in MOVED or layout not in ("row", "col"):
        raise unknown(one)
    m, n, k = sizes(shape)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(part, (m, n))
    first, second, *stride = one.operands
    names, where = (first, second) if action == "load" else (second, first)
    if kind not in (("f16", "f32", "s32") if part in "cd" else SHAPES):
        raise unknown(one)
    if action == "load":
        places = [d.register(each, 4) for each in listed(names)]
    else:
        places = [d.value(each, kind if kind != "f16" else "b32") for each in listed(names)]
    at = memory(d, one, where)
    step = d.value(stride[0], "b32") if stride else ABSENT
    more = [KINDS[kind], rows, columns, int(layout == "col"), len(places), *places]
    return d.emit(f"wmma.{action}", b=step, **at, more=more)


def _multiply(d: Decoder, one: Instruction, sizes: tuple[int, int, int], kinds: tuple[str, ...], opaque: bool) -> None:
    """Emit a product of any kinds (of d, a, b, c). opaque: fragments of wmma."""
    m, n, k = sizes
    to, a, _, c = kinds
    sums = ("s32",) if a in ("s8", "u8") else ("f32", "f16") if a == "f16" else ("f32",)
    if to not in sums or c not in sums or ("satfinite" in one.words and sums != ("s32",)):
        raise unknown(one)
    elements = m * n, m * k, k * n, m * n
    counts = [size // 32 // PER_WORD.get(kind, 1) for size, kind in zip(elements, kinds, strict=True)]
    if opaque and a == "f16":
        counts[1:3] = [8, 8]
    more: list[int] = [m, n, k]
    for kind, places in zip(kinds, _registers(d, one, tuple(counts)), strict=True):
        more += [KINDS[kind], len(places), *places]
    d.emit("mma.any", imm=opaque | 2 * ("satfinite" in one.words), more=more)


def _registers(d: Decoder, one: Instruction, counts: tuple[int, ...]) -> list[list[int]]:
    """Places of d, a, b and c. Raises CompileError for other numbers of registers."""
    to, *names = [listed(each) for each in one.operands]
    found = (len(to), *map(len, names))
    if found != counts:
        raise unknown(one, f" with {', '.join(map(str, found))} registers")
    kinds = ("b32", "b32", "f32" if one.type == "f32" else "b32")
    sources = [[d.value(name, kind) for name in each] for each, kind in zip(names, kinds, strict=True)]
    return [[d.register(name, 4) for name in to], *sources]


def sizes(shape: str) -> tuple[int, int, int]:
    """m, n, k of `m16n8k16`. Raises ValueError for another text."""
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    if not found:
        raise ValueError(shape)
    return int(found[1]), int(found[2]), int(found[3])

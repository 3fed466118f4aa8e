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
QUICK = {"m16n8k16.bf16", "m16n8k8.bf16", "m16n8k16.f16", "m16n8k8.f16", "m16n8k8.tf32", "m16n8k4.tf32"}


def matrices(d: Decoder, one: Instruction) -> None:
    """ldmatrix and stmatrix."""
    loads = one.opcode == "ldmatrix"
    names, where = one.operands if loads else one.operands[::-1]
    places = [d.register(each, "b32") if loads else d.value(each, "b32") for each in listed(names)]
    if f"x{len(places)}" not in one.words:
        raise unknown(one, f" with {len(places)} registers")
    name = f"{one.opcode}.x{len(places)}" + (".trans" if "trans" in one.words else "")
    d.emit(name, **memory(d, one, where), more=places)


def mma(d: Decoder, one: Instruction) -> None:
    words = [each for each in one.words if each != "satfinite"]
    _, _, shape, _, _, to, a, b, c = words
    m, n, k = sizes(shape)
    if (m, n) != (16, 8) or (a, b) not in FACTORS:
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
        _, _, shape, to, *rest = words
        a, b, c = rest if len(rest) == 3 else ("f16", "f16", *rest)
        if (a, b) not in FACTORS or shape not in SHAPES[a]:
            raise unknown(one)
        return _multiply(d, one, sizes(shape), (to, a, b, c), True)
    part, *words = [each for each in one.words[1:] if each not in ("sync", "aligned", *SPACES)]
    layout, shape, kind = words
    m, n, k = sizes(shape)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(part, (m, n))
    first, second, *stride = one.operands
    names, where = (listed(first), second) if action == "load" else (listed(second), first)
    if kind not in (("f16", "f32", "s32") if part in "cd" else SHAPES):
        raise unknown(one)
    if len(names) != (8 if part in "ab" and kind == "f16" else rows * columns // 32 // PER_WORD.get(kind, 1)):
        raise unknown(one, f" with {len(names)} registers")
    word = kind if kind in ("f32", "s32") else "b32"
    places = [d.register(each, word) if action == "load" else d.value(each, word) for each in names]
    at = memory(d, one, where)
    step = d.value(stride[0], "u32") if stride else ABSENT
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
    kind = "f32" if one.words.count("f32") == 2 else "b32"
    sources = [[d.value(name, kind) for name in each] for each, kind in zip(names, ("b32", "b32", kind), strict=True)]
    return [[d.register(name, kind) for name in to], *sources]


def sizes(shape: str) -> tuple[int, int, int]:
    """m, n, k of `m16n8k16`."""
    m, n, k = map(int, re.findall(r"\d+", shape))
    return m, n, k

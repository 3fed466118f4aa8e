"""Instructions on a lane's own values: arithmetic, comparisons, conversions, copies."""

from collections.abc import Callable

from common.devices.ptx.decode import Decoder
from common.devices.ptx.places import CLASSES, CLOCKS, SPECIAL, constant
from common.devices.ptx.rows import ABSENT, Instruction, Place, listed, unknown
from common.devices.ptx.text import WIDTHS, wrong

ROUNDING = {"rn": 1, "rm": 2, "rp": 3, "rz": 4, "rni": 5, "rmi": 6, "rpi": 7, "rzi": 8}
Rule = Callable[[Decoder, Instruction], None]


def signless(kind: str) -> str:
    """b32 for s32, u32 and f32."""
    return kind if kind == "pred" else f"b{8 * WIDTHS[kind]}"


def _key(d: Decoder, one: Instruction, words: list[str]) -> str:
    """The machine's name of an operation: with the type as written, or only with its size."""
    kind = one.type.replace("b", "u") if one.opcode == "shr" else one.type  # without a sign
    exact = ".".join((one.opcode, *words, kind))
    if d.known(exact):
        return exact
    free = ".".join((one.opcode, *words, signless(one.type)))
    if (CLASSES[one.type] not in ("", "int", "pred") and one.opcode != "selp") or not d.known(free):
        raise unknown(one)
    return free


def plain(d: Decoder, one: Instruction) -> None:
    """Lane by lane, with operands of the form's kinds."""
    words = [each for each in one.words[:-1] if each != "rn"]
    if one.opcode in ("div", "rcp", "sqrt") and one.type == "f32":  # correct rounding is accurate enough
        words = [each for each in words if each not in ("approx", "full")]
    (to, *rest), (result, *kinds) = one.operands, one.kinds
    places = [d.value(each, kind) for each, kind in zip(rest, kinds, strict=True)]
    d.emit(_key(d, one, words), d.register(to, result), *places[:3], more=places[3:])


def mov(d: Decoder, one: Instruction) -> None:
    to, source = one.operands
    if one.type == "pred":
        return d.emit("mov.pred", d.register(to, "pred"), d.predicate(source))
    width = WIDTHS[one.type]
    if "{" in to + source and one.type[0] != "b":
        raise ValueError
    if to.startswith("{"):
        names = listed(to)
        part = f"b{8 * width // len(names)}"
        places = [ABSENT if name == "_" else d.register(name, part) for name in names]
        return d.emit(f"split.b{8 * width}", a=d.value(source, one.type), imm=len(names), more=places)
    if source.startswith("{"):
        names = listed(source)
        places = [d.value(name, f"b{8 * width // len(names)}") for name in names]
        return d.emit(f"join.b{8 * width}", d.register(to, one.type), imm=len(names), more=places)
    if source in CLOCKS:
        if width != CLOCKS[source]:
            raise ValueError
        return d.emit("clock", d.register(to, one.type), imm=width)
    symbol = d.symbol(source, one.type)
    copied = symbol or constant(source, one.type) is not None
    place = symbol.at if symbol else d.value(source, one.type)
    if d.renamed(to) if copied else d.fixed_copy(to, source):
        return d.name(to, place, one.type)
    return d.emit(f"mov.b{8 * width}", d.register(to, one.type), place)


def setp(d: Decoder, one: Instruction) -> None:
    *words, _ = one.words
    combined = next((each for each in words if each in ("and", "or", "xor")), None)
    how = next(each for each in words if each not in ("ftz", combined))
    kind = one.type.replace("b", "u") if one.type in ("b16", "b32", "b64") else one.type
    names = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    flush = "ftz." if "ftz" in words else ""
    to, a, b, *rest = one.operands
    yes, _, no = to.partition("|")
    places = d.value(a, one.type), d.value(b, one.type)
    imm = {None: 0, "and": 1, "or": 2, "xor": 3}[combined] | 4 * bool(no)
    more = [d.register(no, "pred") if no else ABSENT, d.predicate(rest[0]) if rest else ABSENT]
    d.emit(f"setp.{names.get(how, how)}.{flush}{kind}", d.register(yes, "pred"), *places, imm=imm, more=more)


def lop3(d: Decoder, one: Instruction) -> None:
    to, a, b, c, table = one.operands
    places = [d.value(each, "b32") for each in (a, b, c)]
    d.emit("lop3.b32", d.register(to, "b32"), *places, imm=int(table, 0))


def cvt(d: Decoder, one: Instruction) -> None:
    *words, to_kind, kind = one.words
    imm = sum(ROUNDING.get(each, 0) for each in words)
    imm |= 16 * ("sat" in words) | 32 * ("ftz" in words) | 64 * ("relu" in words)
    if to_kind in ("bf16x2", "f16x2"):
        to, a, b = one.operands
        places = d.value(a, "f32"), d.value(b, "f32")
        return d.emit("cvt.x2.f32", d.register(to, to_kind), *places, c=to_kind == "bf16x2", imm=imm)
    to, source = one.operands
    if constant(source, kind) is None:
        place = (source in SPECIAL and d.symbol(source, kind)) or d.place(source, kind)
    else:
        place = Place(d.value(source, kind), WIDTHS[kind])
    if place.bytes > WIDTHS[kind]:  # the low part of a wider register
        narrow = d.new(WIDTHS[kind])
        _resize(d, narrow, place, "u")
        place = narrow
    elif place.bytes < WIDTHS[kind]:
        raise wrong(one.line, f"{source} has {8 * place.bytes} bits, and .{kind} has {8 * WIDTHS[kind]}")
    target = d.place(to, to_kind)
    if target.bytes <= WIDTHS[to_kind]:  # `register` refuses one that is narrower
        return d.emit(f"cvt.{to_kind}.{kind}", d.register(to, to_kind), place.at, imm=imm)
    narrow = d.new(WIDTHS[to_kind])
    d.emit(f"cvt.{to_kind}.{kind}", narrow.at, place.at, imm=imm)
    return _resize(d, target, narrow, "s" if to_kind[0] == "s" else "u")


def _resize(d: Decoder, to: Place, source: Place, sign: str) -> None:
    name = f"cvt.{sign}{8 * to.bytes}.{sign}{8 * source.bytes}"
    d.emit(name, to.at, source.at, opcode=name)

"""Instructions on a lane's own values: arithmetic, comparisons, conversions, copies."""

from collections.abc import Callable

from common.devices.ptx.decode import Decoder
from common.devices.ptx.places import CLOCKS, SPECIAL
from common.devices.ptx.rows import ABSENT, Instruction, Place, listed, unknown
from common.devices.ptx.text import WIDTHS, wrong

ROUNDING = {"rn": 1, "rm": 2, "rp": 3, "rz": 4, "rni": 5, "rmi": 6, "rpi": 7, "rzi": 8}
OWN = {"tf32": "b32", "e4m3x2": "b16", "e5m2x2": "b16"}  # types of cvt alone, and of their registers
Rule = Callable[[Decoder, Instruction], None]


def signless(kind: str) -> str:
    """b32 for s32, u32 and f32."""
    return kind if kind in ("pred",) else f"b{8 * WIDTHS[kind]}"


def _key(d: Decoder, one: Instruction, words: list[str]) -> str:
    """The machine's name of an operation: with the type as written, or only with its size."""
    kind = one.type.replace("b", "u") if one.opcode == "shr" else one.type  # without a sign
    exact = ".".join((one.opcode, *words, kind))
    if d.known(exact):
        return exact
    free = ".".join((one.opcode, *words, signless(one.type)))
    if one.type[0] in "fb" and one.type not in ("b16", "b32", "b64") and one.opcode not in ("mov", "selp"):
        raise unknown(one)
    if not d.known(free):
        raise unknown(one)
    return free


def plain(result: str = "", *sources: str) -> Rule:
    """Lane by lane: types of the result and of the operands, "" for the instruction's own."""

    def rule(d: Decoder, one: Instruction) -> None:
        words = [each for each in one.words[:-1] if each != "rn"]
        if one.opcode in ("div", "rcp", "sqrt") and one.type == "f32":  # correct rounding is accurate enough
            words = [each for each in words if each not in ("approx", "full")]
        wide = "wide" in words
        kinds = list(sources)
        if wide:
            kinds[2:] = [f"{one.type[0]}{16 * WIDTHS[one.type]}"] * (len(kinds) - 2)
        width = 2 * WIDTHS[one.type] if wide else WIDTHS[result or one.type]
        to, *rest = one.operands
        if len(rest) != len(kinds):
            raise unknown(one)
        places = [d.value(each, kind or one.type) for each, kind in zip(rest, kinds, strict=True)]
        key = _key(d, one, words)
        at = d.predicate(to) if one.type == "pred" else d.register(to, width)
        d.emit(key, at, *places[:3], more=places[3:])

    return rule


def approximate(d: Decoder, one: Instruction) -> None:
    flush = "ftz" in one.words
    to, a = one.operands
    if one.type != "f32":
        source = d.value(a, one.type)
        return d.emit(one.name, d.register(to, WIDTHS[one.type]), source)
    source = d.value(a, "f32")
    return d.emit(f"{one.opcode}.approx", d.register(to, 4), source, imm=flush)


def mov(d: Decoder, one: Instruction) -> None:
    to, source = one.operands
    if one.type == "pred":
        return d.emit("mov.pred", d.predicate(to), d.predicate(source))
    width = WIDTHS[one.type]
    if to.startswith("{"):
        names = listed(to)
        part = width // len(names)
        places = [ABSENT if name == "_" else d.register(name, part) for name in names]
        return d.emit(f"split.b{8 * width}", a=d.value(source, one.type), imm=len(names), more=places)
    if source.startswith("{"):
        names = listed(source)
        places = [d.value(name, f"b{8 * width // len(names)}") for name in names]
        return d.emit(f"join.b{8 * width}", d.register(to, width), imm=len(names), more=places)
    if source in CLOCKS:
        return d.emit("clock", d.register(to, CLOCKS[source]), imm=CLOCKS[source])
    copied = d.constant(source, one.type) is not None or source in SPECIAL or d.variable(source) is not None
    place = d.value(source, one.type)
    if copied and d.renamed(to):
        return d.name(to, Place(place, width))
    if not copied and d.fixed_copy(to, source):
        return d.name(to, Place(place, width))
    return d.emit(f"mov.b{8 * width}", d.register(to, width), place)


def setp(d: Decoder, one: Instruction) -> None:
    how, *words = one.words[:-1]
    combined = next((each for each in words if each in ("and", "or", "xor")), None)
    kind = one.type.replace("b", "u") if one.type in ("b16", "b32", "b64") else one.type
    if "ftz" in words and kind in ("f16", "bf16"):
        raise unknown(one)
    names = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    flush = "ftz." if "ftz" in words and kind == "f32" else ""
    to, a, b, *rest = one.operands
    yes, _, no = to.partition("|")
    places = d.value(a, one.type), d.value(b, one.type)
    imm = {None: 0, "and": 1, "or": 2, "xor": 3}[combined]
    more = []
    if rest or no:
        imm |= 4 if no else 0
        more = [d.predicate(no) if no else ABSENT, d.predicate(rest[0]) if rest else ABSENT]
    d.emit(f"setp.{names.get(how, how)}.{flush}{kind}", d.predicate(yes), *places, imm=imm, more=more)


def selp(d: Decoder, one: Instruction) -> None:
    to, a, b, p = one.operands
    places = d.value(a, one.type), d.value(b, one.type), d.predicate(p)
    d.emit(_key(d, one, []), d.register(to, WIDTHS[one.type]), *places)


def lop3(d: Decoder, one: Instruction) -> None:
    to, a, b, c, table = one.operands
    places = [d.value(each, "b32") for each in (a, b, c)]
    d.emit("lop3.b32", d.register(to, 4), *places, imm=int(table, 0))


def cvt(d: Decoder, one: Instruction) -> None:
    *words, to_kind, kind = one.words
    if to_kind in OWN or kind in OWN:
        count = 2 if kind == "f32" and to_kind != "tf32" else 1
        return plain(OWN.get(to_kind, to_kind), *[OWN.get(kind, kind)] * count)(d, one)
    imm = sum(ROUNDING.get(each, 0) for each in words)
    imm |= 16 * ("sat" in words) | 32 * ("ftz" in words) | 64 * ("relu" in words)
    if set(words) - {*ROUNDING, "sat", "ftz", "relu"}:
        raise unknown(one)
    if to_kind in ("bf16x2", "f16x2"):
        to, a, b = one.operands
        places = d.value(a, "f32"), d.value(b, "f32")
        return d.emit("cvt.x2.f32", d.register(to, 4), *places, c=to_kind == "bf16x2", imm=imm)
    to, source = one.operands
    known = d.constant(source, kind) is not None
    place = Place(d.value(source, kind), WIDTHS[kind]) if known else d.place(source)
    if place.bytes > WIDTHS[kind]:  # the low part of a wider register
        narrow = d.new(WIDTHS[kind])
        _resize(d, narrow, place, "u")
        place = narrow
    elif place.bytes < WIDTHS[kind]:
        raise wrong(one.line, f"{source} has {8 * place.bytes} bits, and .{kind} has {8 * WIDTHS[kind]}")
    target = d.place(to)
    if target.bytes == WIDTHS[to_kind]:
        return d.emit(f"cvt.{to_kind}.{kind}", d.register(to, target.bytes), place.at, imm=imm)
    narrow = d.new(WIDTHS[to_kind])
    d.emit(f"cvt.{to_kind}.{kind}", narrow.at, place.at, imm=imm)
    sign = to_kind[0] if to_kind[0] == "s" else "u"
    return _resize(d, target, narrow, sign)


def _resize(d: Decoder, to: Place, source: Place, sign: str) -> None:
    name = f"cvt.{sign}{8 * to.bytes}.{sign}{8 * source.bytes}"
    d.emit(name, to.at, source.at, opcode=name)

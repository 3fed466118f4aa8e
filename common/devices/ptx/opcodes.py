"""Instructions of PTX as operations of the machine: which modifiers mean what, and which operands have which type."""

from collections.abc import Callable

from common.devices.ptx.decode import ABSENT, CLOCKS, LOCAL_WINDOW, SHARED_WINDOW, SPECIAL, Decoder, Instruction, Place
from common.devices.ptx.text import WIDTHS, wrong

SPACES = {"global": 1, "shared": 2, "shared::cta": 2, "shared::cluster": 2, "local": 3, "const": 1}
ORDERS = {"weak": 0, "relaxed": 1, "volatile": 1, "acquire": 2, "release": 3, "acq_rel": 4, "nc": 5}
SCOPES = {"cta": 0, "cluster": 0, "gpu": 1, "sys": 2}
WIDE = 1 << 8
HINTS = ("ca", "cg", "cs", "cv", "lu", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first",
         "L1::evict_normal", "L1::evict_unchanged", "L2::64B", "L2::128B", "L2::256B", "L2::cache_hint")  # fmt: skip
ROUNDING = {"rn": 1, "rm": 2, "rp": 3, "rz": 4, "rni": 5, "rmi": 6, "rpi": 7, "rzi": 8}
ELEMENT = {"b": "u", "f": "u", "u": "u", "s": "s"}

Rule = Callable[[Decoder, Instruction], None]


def decode_instruction(d: Decoder, one: Instruction) -> None:
    """Emit the rows of one instruction. Raises CompileError for what the executor does not know."""
    rule = RULES.get(one.opcode)
    if not rule:
        raise unknown(one)
    try:
        rule(d, one)
    except (ValueError, IndexError, KeyError):
        raise wrong(one.line, f"the executor does not know {one.name} with {len(one.operands)} operands") from None


def unknown(one: Instruction) -> Exception:
    return wrong(one.line, f"the executor does not know {one.name}")


def _signless(kind: str) -> str:
    """b32 for s32, u32 and f32."""
    return kind if kind in ("pred",) else f"b{8 * WIDTHS[kind]}"


def _key(d: Decoder, one: Instruction, words: list[str]) -> str:
    """The machine's name of an operation: with the type as it is written, or only with its size."""
    exact = ".".join((one.opcode, *words, one.type))
    if d.known(exact):
        return exact
    free = ".".join((one.opcode, *words, _signless(one.type)))
    if one.type[0] in "fb" and one.type not in ("b16", "b32", "b64") and one.opcode not in ("mov", "selp"):
        raise unknown(one)
    if not d.known(free):
        raise unknown(one)
    return free


def _plain(result: str = "", *sources: str) -> Rule:
    """Lane by lane: types of the result and of the operands, "" for the instruction's own."""

    def rule(d: Decoder, one: Instruction) -> None:
        words = [each for each in one.words[:-1] if each != "rn"]
        words = [each for each in words if each not in ("approx", "full") or one.opcode not in ("div", "rcp", "sqrt")]
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
        d.emit(key, at, *places[:3], more=places[3:], opcode=one.name)

    return rule


def _approximate(d: Decoder, one: Instruction) -> None:
    flush = "ftz" in one.words
    if one.type != "f32":
        raise unknown(one)
    to, a = one.operands
    source = d.value(a, "f32")
    d.emit(f"{one.opcode}.approx", d.register(to, 4), source, imm=flush, opcode=one.name)


def _mov(d: Decoder, one: Instruction) -> None:
    to, source = one.operands
    if one.type == "pred":
        return d.emit("mov.pred", d.predicate(to), d.predicate(source), opcode=one.name)
    width = WIDTHS[one.type]
    if to.startswith("{"):
        names = _listed(to)
        part = width // len(names)
        places = [ABSENT if name == "_" else d.register(name, part) for name in names]
        return d.emit(f"split.b{8 * width}", a=d.value(source, one.type), imm=len(names), more=places, opcode=one.name)
    if source.startswith("{"):
        names = _listed(source)
        places = [d.value(name, f"b{8 * width // len(names)}") for name in names]
        return d.emit(f"join.b{8 * width}", d.register(to, width), imm=len(names), more=places, opcode=one.name)
    if source in CLOCKS:
        return d.emit("clock", d.register(to, CLOCKS[source]), imm=CLOCKS[source], opcode=one.name)
    copied = d.constant(source, one.type) is not None or source in SPECIAL or d.variable(source) is not None
    place = d.value(source, one.type)
    if d.defined_once(to) and copied:
        return d.name(to, Place(place, width))
    if not copied and d.fixed_copy(to, source):
        return d.name(to, Place(place, width))
    return d.emit(f"mov.b{8 * width}", d.register(to, width), place, opcode=one.name)


def _setp(d: Decoder, one: Instruction) -> None:
    how, *words = one.words[:-1]
    combined = next((each for each in words if each in ("and", "or", "xor")), None)
    kind = one.type.replace("b", "u") if one.type[0] == "b" else one.type
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
    d.emit(f"setp.{names.get(how, how)}.{flush}{kind}", d.predicate(yes), *places, imm=imm, more=more, opcode=one.name)


def _selp(d: Decoder, one: Instruction) -> None:
    to, a, b, p = one.operands
    places = d.value(a, one.type), d.value(b, one.type), d.predicate(p)
    d.emit(_key(d, one, []), d.register(to, WIDTHS[one.type]), *places, opcode=one.name)


def _lop3(d: Decoder, one: Instruction) -> None:
    to, a, b, c, table = one.operands
    places = [d.value(each, "b32") for each in (a, b, c)]
    d.emit("lop3.b32", d.register(to, 4), *places, imm=int(table, 0), opcode=one.name)


def _cvt(d: Decoder, one: Instruction) -> None:
    *words, to_kind, kind = one.words
    imm = sum(ROUNDING.get(each, 0) for each in words)
    imm |= 16 * ("sat" in words) | 32 * ("ftz" in words) | 64 * ("relu" in words)
    if set(words) - {*ROUNDING, "sat", "ftz", "relu"}:
        raise unknown(one)
    if to_kind in ("bf16x2", "f16x2"):
        to, a, b = one.operands
        places = d.value(a, "f32"), d.value(b, "f32")
        return d.emit("cvt.x2.f32", d.register(to, 4), *places, c=to_kind == "bf16x2", imm=imm, opcode=one.name)
    to, source = one.operands
    known = d.constant(source, kind) is not None
    place = Place(d.value(source, kind), WIDTHS[kind]) if known else d.place(source)
    if place.bytes > WIDTHS[kind]:  # the low part of a wider register
        narrow = d.new(WIDTHS[kind])
        d.emit(f"cvt.u{8 * narrow.bytes}.u{8 * place.bytes}", narrow.at, place.at)
        place = narrow
    elif place.bytes < WIDTHS[kind]:
        raise wrong(one.line, f"{source} has {8 * place.bytes} bits, and .{kind} has {8 * WIDTHS[kind]}")
    target = d.place(to)
    if target.bytes == WIDTHS[to_kind]:
        return d.emit(f"cvt.{to_kind}.{kind}", d.register(to, target.bytes), place.at, imm=imm, opcode=one.name)
    narrow = d.new(WIDTHS[to_kind])
    d.emit(f"cvt.{to_kind}.{kind}", narrow.at, place.at, imm=imm, opcode=one.name)
    sign = to_kind[0] if to_kind[0] == "s" else "u"
    return d.emit(f"cvt.{sign}{8 * target.bytes}.{sign}{8 * narrow.bytes}", target.at, narrow.at)


def _cvta(d: Decoder, one: Instruction) -> None:
    to, source = one.operands
    space = next(each for each in one.words if each in SPACES)
    place = d.value(source, "u64")
    if SPACES[space] == 1:
        if d.fixed_copy(to, source) if d.constant(source, "u64") is None and d.variable(source) is None else False:
            return d.name(to, Place(place, 8))
        return d.emit("mov.b64", d.register(to, 8), place, opcode=one.name)
    start = d.number(SHARED_WINDOW if SPACES[space] == 2 else LOCAL_WINDOW, 8)
    return d.emit("window", d.register(to, 8), place, start, imm=-1 if "to" in one.words else 1, opcode=one.name)


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.strip("{} ").split(",")]


def _access(one: Instruction, wide: bool, default: str = "weak", scope: str = "gpu") -> int:
    """Flags of an access. Raises for modifiers that are not known."""
    words = [*one.words[:-1]] if one.type in WIDTHS else [*one.words]
    space = next((SPACES[each] for each in words if each in SPACES), 0)
    order = next((ORDERS[each] for each in words if each in ORDERS), ORDERS[default])
    at = 2 if "volatile" in words else next((SCOPES[each] for each in words if each in SCOPES), SCOPES[scope])
    return space | order << 3 | at << 6 | (WIDE if wide else 0)


def _only(one: Instruction, *allowed: str) -> None:
    known = {*SPACES, *SCOPES, *HINTS, *allowed}
    if any(each not in known for each in one.words[:-1]):
        raise unknown(one)


def _ld(d: Decoder, one: Instruction) -> None:
    to, where, *_ = one.operands
    names, width = _listed(to), WIDTHS[one.type]
    if "param" in one.words:
        for at, name in enumerate(names):
            place = d.parameter(where, width) if len(names) == 1 else d.parameter(f"{where[:-1]}+{at * width}]", width)
            target = d.place(name)
            if target.bytes == width and d.defined_once(name):
                d.name(name, place)
            else:
                sign = one.type[0] if one.type[0] == "s" else "u"
                d.emit(f"cvt.{sign}{8 * target.bytes}.{sign}{8 * width}", target.at, place.at, opcode=one.name)
        return
    _only(one, "weak", "relaxed", "volatile", "acquire", "nc", "v2", "v4")
    address, wide, offset = d.address(where)
    targets = [d.register(each, d.place(each).bytes) for each in names]
    bits = 8 * d.place(names[0]).bytes
    element = f"{ELEMENT[one.type[0]]}{8 * width}" if 8 * width != bits else f"u{bits}"
    vector = f"v{len(names)}." if len(names) > 1 else ""
    flags = _access(one, wide)
    d.emit(
        f"ld.{vector}{element}.b{bits}", targets[0], address, imm=offset, flags=flags, more=targets[1:], opcode=one.name
    )


def _st(d: Decoder, one: Instruction) -> None:
    where, source, *_ = one.operands
    _only(one, "weak", "relaxed", "volatile", "release", "v2", "v4")
    names, width = _listed(source), WIDTHS[one.type]
    places = []
    bits = 8 * width
    for name in names:
        if d.constant(name, one.type) is not None:
            places.append(d.value(name, one.type))
        else:
            places.append(d.place(name).at)
            bits = 8 * d.place(name).bytes
    if width == 1 and bits == 8:
        bits, places = 32, [d.value(names[0], "u32")]
    address, wide, offset = d.address(where)
    vector = f"v{len(names)}." if len(names) > 1 else ""
    flags = _access(one, wide)
    d.emit(
        f"st.{vector}u{8 * width}.b{bits}",
        places[0],
        address,
        imm=offset,
        flags=flags,
        more=places[1:],
        opcode=one.name,
    )


def _atom(d: Decoder, one: Instruction) -> None:
    words = [each for each in one.words[:-1] if each not in (*SPACES, *ORDERS, *SCOPES, *HINTS, "noftz")]
    (how,) = words
    rest = list(one.operands)
    to = rest.pop(0) if one.opcode == "atom" else "_"
    address, wide, offset = d.address(rest.pop(0))
    places = [d.value(each, one.type) for each in rest]
    flags = _access(one, wide, "relaxed")
    name = f"{one.opcode}.{how}.{one.type}"
    if not d.known(name):
        name = f"{one.opcode}.{how}.{_signless(one.type)}"
    target = ABSENT if to == "_" else d.register(to, WIDTHS[one.type])
    b, c = [*places, ABSENT][:2]
    d.emit(name, target, address, b, c, imm=offset, flags=flags, opcode=one.name)


def _prefetch(d: Decoder, one: Instruction) -> None:
    address, wide, offset = d.address(one.operands[0])
    d.emit("prefetch", a=address, imm=offset, flags=_access(one, wide), opcode=one.name)


def _together(d: Decoder, one: Instruction) -> None:
    """shfl, vote, match, redux: the last operand is the member mask."""
    if one.words[0] != "sync":
        raise unknown(one)
    to, *rest = one.operands
    to, _, p = to.partition("|")
    kind = "b32" if one.opcode == "vote" else one.type
    mask = d.value(rest.pop(), "b32")
    name = ".".join((one.opcode, *one.words[1:]))
    more = [d.predicate(p) if p and p != "_" else ABSENT, mask]
    if one.opcode == "shfl":
        places = [d.value(rest[0], kind), d.value(rest[1], "b32"), d.value(rest[2], "b32")]
        return d.emit(name, d.register(to, 4), *places, more=more, opcode=one.name)
    source = d.predicate(rest[0]) if one.opcode == "vote" else d.value(rest[0], kind)
    target = d.predicate(to) if one.type == "pred" else d.register(to, 4)
    return d.emit(name, target, source, mask, more=more, opcode=one.name)


def _bar(d: Decoder, one: Instruction) -> None:
    words = [each for each in one.words if each not in ("cta", "aligned")]
    if words == ["warp", "sync"]:
        return d.emit("bar.warp", a=d.value(one.operands[0], "b32"), opcode=one.name)
    if words not in (["sync"], ["arrive"]):
        raise unknown(one)
    places = [d.value(each, "b32") for each in one.operands]
    return d.emit(f"bar.{words[0]}", a=places[0], b=[*places, ABSENT][1], opcode=one.name)


def _elect(d: Decoder, one: Instruction) -> None:
    to, _, p = one.operands[0].partition("|")
    target = ABSENT if to == "_" else d.register(to, 4)
    d.emit("elect", target, b=d.value(one.operands[1], "b32"), more=[d.predicate(p)], opcode=one.name)


def _activemask(d: Decoder, one: Instruction) -> None:
    d.emit("activemask.b32", d.register(one.operands[0], 4), opcode=one.name)


def _mma(d: Decoder, one: Instruction) -> None:
    sync, aligned, shape, row, col, to, a, b, c = one.words
    if (sync, aligned, row, col, to, c) != ("sync", "aligned", "row", "col", "f32", "f32") or a != b:
        raise unknown(one)
    names = [_listed(each) for each in one.operands]
    places = [d.register(each, 4) for each in names[0]]
    places += [d.value(each, "b32") for each in names[1] + names[2]] + [d.value(each, "f32") for each in names[3]]
    d.emit(f"mma.{shape}.{a}", more=places, opcode=one.name)


def _ldmatrix(d: Decoder, one: Instruction) -> None:
    if one.words[:3] != ("sync", "aligned", "m8n8") or one.type != "b16":
        raise unknown(one)
    names = _listed(one.operands[0])
    address, wide, offset = d.address(one.operands[1])
    name = f"ldmatrix.x{len(names)}" + (".trans" if "trans" in one.words else "")
    places = [d.register(each, 4) for each in names]
    d.emit(name, a=address, imm=offset, flags=_access(one, wide), more=places, opcode=one.name)


def _mbarrier(d: Decoder, one: Instruction) -> None:
    what = one.words[0]
    rest = list(one.operands)
    if set(one.words) - {*SPACES, *SCOPES, *ORDERS, "b64", "expect_tx", "parity", what}:
        raise unknown(one)
    if what in ("init", "inval", "expect_tx"):
        address, wide, offset = d.address(rest[0])
        count = d.value(rest[1], "b32") if len(rest) > 1 else ABSENT
        flags = _access(one, wide, "relaxed", "cta")
        return d.emit(f"mbarrier.{what}", a=address, b=count, imm=offset, flags=flags, opcode=one.name)
    to = rest.pop(0)
    address, wide, offset = d.address(rest.pop(0))
    if what in ("try_wait", "test_wait"):
        parity = "parity" in one.words
        phase = d.value(rest[0], "b32" if parity else "b64")
        name = "mbarrier.wait.parity" if parity else "mbarrier.wait"
        flags = _access(one, wide, "acquire", "cta")
        return d.emit(name, d.predicate(to), address, phase, imm=offset, flags=flags, opcode=one.name)
    name = f"mbarrier.{what}" + (".expect_tx" if "expect_tx" in one.words else "")
    count = d.value(rest[0], "b32") if rest else ABSENT
    target = ABSENT if to == "_" else d.register(to, 8)
    flags = _access(one, wide, "release", "cta")
    return d.emit(name, target, address, count, imm=offset, flags=flags, opcode=one.name)


def _cp(d: Decoder, one: Instruction) -> None:
    if one.words[:2] == ("async", "bulk"):
        return _bulk(d, one)
    if one.words[1] in ("commit_group", "wait_group", "wait_all"):
        imm = -1 if one.words[1] == "wait_all" else int(one.operands[0], 0) if one.operands else 0
        name = "cp.async.commit_group" if one.words[1] == "commit_group" else "cp.async.wait_group"
        return d.emit(name, imm=imm, opcode=one.name)
    if one.words[1] not in ("ca", "cg") or "global" not in one.words:
        raise unknown(one)
    to, source, size, *rest = one.operands
    address, wide, offset = d.address(to)
    start, source_wide, source_offset = d.address(source)
    if not source_wide:
        raise wrong(one.line, f"{source} has 32 bits and lies in global memory")
    read = d.value(rest[0], "b32") if rest and "L2::cache_hint" not in one.words else ABSENT
    more = [source_offset, int(size, 0), read]
    flags = _access(one, wide)
    return d.emit("cp.async", a=address, b=start, imm=offset, flags=flags & ~7 | 2, more=more, opcode=one.name)


def _bulk(d: Decoder, one: Instruction) -> None:
    kind = tuple(each for each in one.words[2:] if each != "L2::cache_hint")
    if kind not in (
        ("shared::cluster", "global", "mbarrier::complete_tx::bytes"),
        ("shared::cta", "global", "mbarrier::complete_tx::bytes"),
    ):
        raise unknown(one)
    to, source, size, barrier, *_ = one.operands
    address, wide, offset = d.address(to)
    start, source_wide, source_offset = d.address(source)
    at, barrier_wide, barrier_offset = d.address(barrier)
    if not source_wide:
        raise wrong(one.line, f"{source} has 32 bits and lies in global memory")
    more = [d.value(size, "b32"), at, source_offset, barrier_offset, int(barrier_wide)]
    flags = 2 | (WIDE if wide else 0)
    d.emit("cp.async.bulk", a=address, b=start, imm=offset, flags=flags, more=more, opcode=one.name)


def _fence(d: Decoder, one: Instruction) -> None:
    if one.opcode == "membar":
        return d.emit("fence", flags={"cta": 0, "gl": 1, "sys": 2}[one.words[0]] << 6, opcode=one.name)
    if one.words[0] == "proxy":
        if one.words[1] != "async":
            raise unknown(one)
        return d.emit("fence.proxy.async", flags=_access(one, False), opcode=one.name)
    if one.words[0] == "mbarrier_init":
        return d.emit("fence.mbarrier_init", opcode=one.name)
    if one.words[0] not in ("acq_rel", "sc", "acquire", "release"):
        raise unknown(one)
    return d.emit("fence", flags=SCOPES[one.words[1]] << 6, opcode=one.name)


def _bra(d: Decoder, one: Instruction) -> None:
    d.jump("bra", one.operands[0])


def _nothing(d: Decoder, one: Instruction) -> None:
    """createpolicy: a hint."""
    d.emit("nop", opcode=one.name)


def _bare(name: str) -> Rule:
    return lambda d, one: d.emit(name, opcode=one.name)


_binary, _unary, _ternary = _plain("", "", ""), _plain("", ""), _plain("", "", "", "")
RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "copysign"), _binary),
    **dict.fromkeys(("neg", "abs", "not", "cnot", "rcp", "sqrt", "brev"), _unary),
    **dict.fromkeys(("fma", "mad"), _ternary),
    **dict.fromkeys(("shl", "shr"), _plain("", "", "u32")),
    **dict.fromkeys(("popc", "clz", "bfind"), _plain("u32", "")),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt"), _approximate),
    **dict.fromkeys(("shf", "prmt"), _plain("", "", "", "u32")),
    **dict.fromkeys(("shfl", "vote", "match", "redux"), _together),
    **dict.fromkeys(("bar", "barrier"), _bar),
    **dict.fromkeys(("fence", "membar"), _fence),
    **dict.fromkeys(("atom", "red"), _atom),
    **dict.fromkeys(("ret", "exit"), _bare("exit")),
    "bfe": _plain("", "", "u32", "u32"),
    "bfi": _plain("", "", "", "u32", "u32"),
    "lop3": _lop3,
    "mov": _mov,
    "setp": _setp,
    "selp": _selp,
    "cvt": _cvt,
    "cvta": _cvta,
    "ld": _ld,
    "st": _st,
    "prefetch": _prefetch,
    "elect": _elect,
    "activemask": _activemask,
    "mma": _mma,
    "ldmatrix": _ldmatrix,
    "mbarrier": _mbarrier,
    "cp": _cp,
    "bra": _bra,
    "trap": _bare("trap"),
    "nanosleep": _bare("nanosleep"),
    "createpolicy": _nothing,
}

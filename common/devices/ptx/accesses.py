"""Instructions that access memory, copy it, or order its accesses."""

from typing import TypedDict

from common.devices.ptx.arithmetic import signless
from common.devices.ptx.decode import Decoder
from common.devices.ptx.places import ADDRESS, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, constant
from common.devices.ptx.rows import ABSENT, Instruction, listed, unknown
from common.devices.ptx.text import WIDTHS, wrong

SPACES = {"global": 1, "shared": 2, "shared::cta": 2, "shared::cluster": 2, "local": 3, "const": 1, "param": 1}
ORDERS = {"weak": 0, "relaxed": 1, "volatile": 6, "acquire": 2, "release": 3, "acq_rel": 4, "nc": 5}
SCOPES = {"cta": 0, "cluster": 0, "gpu": 1, "sys": 2}
WIDE = 1 << 8
OPERATIONS = {"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"}
VECTORS = ("v2", "v4", "v8")


def cvta(d: Decoder, one: Instruction) -> None:
    to, source = one.operands
    (space,) = (each for each in one.words if each in SPACES)
    symbol = d.symbol(source, "u64")
    place = symbol.at if symbol else d.value(source, "u64")
    if SPACES[space] == 1:
        if not symbol and constant(source, "u64") is None and d.fixed_copy(to, source):
            return d.name(to, place, "u64")
        return d.emit("mov.b64", d.register(to, "u64"), place)
    start = d.number(SHARED_WINDOW if SPACES[space] == 2 else LOCAL_WINDOW, 8)
    return d.emit("sub.b64" if "to" in one.words else "add.b64", d.register(to, "u64"), place, start)


def isspacep(d: Decoder, one: Instruction) -> None:
    """Compare with the windows of shared and local memory; all else is global."""
    target, source = d.register(one.operands[0], "pred"), d.value(one.operands[1], "u64")
    starts = {"shared": [SHARED_WINDOW], "local": [LOCAL_WINDOW], "global": [SHARED_WINDOW, LOCAL_WINDOW]}[one.type]
    for at, start in enumerate(starts):
        distance, how = d.new(8).at, "ge" if one.type == "global" else "lt"
        d.emit("sub.b64", distance, source, d.number(start, 8))
        d.emit(f"setp.{how}.u64", target, distance, d.number(WINDOW_BYTES, 8), imm=at, more=[ABSENT, target])


class Memory(TypedDict):
    """The operand [address+offset] of an instruction, as `Decoder.emit` takes it."""

    a: int
    imm: int
    flags: int


def memory(d: Decoder, one: Instruction, where: str, default: str = "weak", scope: str = "gpu") -> Memory:
    """Its place; flags: state space, memory order, scope, and a bit for a 64-bit address."""
    words = [*one.words[:-1]] if one.type in WIDTHS else [*one.words]
    named = next((each for each in words if each in SPACES), "")
    address, wide, offset = d.address(where, named)
    space = SPACES["local"] if named == "param" and "%" not in where else SPACES.get(named, 0)  # a call's
    if "L2::cache_hint" in words:
        d.value(one.operands[-1], "b64")
    order = next((ORDERS[each] for each in words if each in ORDERS), ORDERS[default])
    at = 2 if "volatile" in words else next((SCOPES[each] for each in words if each in SCOPES), SCOPES[scope])
    return {"a": address, "imm": offset, "flags": space | order << 3 | at << 6 | (WIDE if wide else 0)}


def _vector(one: Instruction, names: list[str]) -> str:
    """The beginning `v2.` of a vector's operation. Raises CompileError for another number of registers."""
    if len(names) != next((int(word[1:]) for word in one.words if word in VECTORS), 1):
        raise unknown(one, f" with {len(names)} registers")
    return f"v{len(names)}." if len(names) > 1 else ""


def ld(d: Decoder, one: Instruction) -> None:
    to, where, *_ = one.operands
    names, width = listed(to), WIDTHS[one.type]
    named = "param" in one.words and "%" not in where  # else its address is in a register
    if named and not ((found := ADDRESS.match(where)) and d.variable(found[1])):  # else of a call
        return _ld_param(d, one, names, where)
    vector, at = _vector(one, names), memory(d, one, where)
    size = d.place(next((each for each in names if each != "_"), "_"), one.type).bytes
    targets = [d.new(size).at if each == "_" else d.register(each, _kind(one.type, size)) for each in names]
    element = f"{'s' if one.type[0] == 's' else 'u'}{8 * width}" if width != size else f"u{8 * size}"
    return d.emit(f"ld.{vector}{element}.b{8 * size}", targets[0], **at, more=targets[1:])


def _kind(kind: str, size: int) -> str:
    """The type of a register of `size` bytes from or to which a number of type `kind` is moved: it may be wider."""
    return f"{kind[0].replace('f', 'b')}{8 * size}" if size > WIDTHS[kind] else kind


def _ld_param(d: Decoder, one: Instruction, names: list[str], where: str) -> None:
    """A parameter of the kernel."""
    width = WIDTHS[one.type]
    _vector(one, names)
    for at, name in enumerate(names):
        place = d.parameter(where, width, at * width)
        free, target = d.renamed(name), d.place(name, one.type)
        if free and target.bytes == width:
            d.name(name, place.at, one.type)
        else:
            sign = one.type[0] if one.type[0] == "s" else "u"
            to = d.register(name, _kind(one.type, target.bytes))
            d.emit(f"cvt.{sign}{8 * target.bytes}.{sign}{8 * width}", to, place.at)


def st(d: Decoder, one: Instruction) -> None:
    where, source, *_ = one.operands
    names, width = listed(source), WIDTHS[one.type]
    if "param" in one.words and "%" in where:
        raise ValueError
    vector = _vector(one, names)
    registers = [d.place(name, one.type) for name in names if constant(name, one.type) is None]
    bits = 8 * (registers[0].bytes if registers else max(width, 2))
    if any(8 * each.bytes != bits for each in registers):
        raise unknown(one, f" with the operands {source}")
    places = [d.value(name, _kind(one.type, bits // 8)) for name in names]
    d.emit(f"st.{vector}u{8 * width}.b{bits}", places[0], **memory(d, one, where), more=places[1:])


def atom(d: Decoder, one: Instruction) -> None:
    (how,) = OPERATIONS & {*one.words}
    to, where, *given = one.operands if one.opcode == "atom" else ("_", *one.operands)
    rest = [listed(each) for each in given[: -1 if "L2::cache_hint" in one.words else None]]
    names, at = listed(to), memory(d, one, where, "relaxed")
    for each in (rest[0], names if to != "_" else rest[0]):
        _vector(one, each)
    if len(rest) != 1 + (how == "cas") or (one.opcode == "red" and {"acquire", "acq_rel"} & {*one.words}):
        raise ValueError
    name = f"{one.opcode}.{how}.{one.type}"
    if not d.known(name) and one.type[0] in "us":
        name = f"{one.opcode}.{how}.{signless(one.type)}"
    width, copies = WIDTHS[one.type], []
    for element, operands in enumerate(zip(*rest, strict=True)):
        target = names[element % len(names)]
        place = ABSENT if target == "_" else d.register(target, one.type)
        into = d.new(width).at if place and len(rest[0]) > 1 else place  # it may be an operand of a later element
        b, c = [*(d.value(each, one.type) for each in operands), ABSENT][:2]
        d.emit(name, into, b=b, c=c, **at, opcode=one.name.replace(f".v{len(rest[0])}", ""))
        at["imm"] += width
        copies += [(place, into)] * (into != place)
    for place, into in copies:
        d.emit(f"mov.b{8 * width}", place, into, opcode="mov")


def prefetch(d: Decoder, one: Instruction) -> None:
    d.emit("prefetch", **memory(d, one, one.operands[0]))


def mbarrier(d: Decoder, one: Instruction) -> None:
    action, rest = one.words[0], list(one.operands)
    if action in ("init", "inval", "expect_tx"):
        at = memory(d, one, rest[0], "relaxed", "cta")
        return d.emit(f"mbarrier.{action}", b=d.value(rest[1], "u32") if len(rest) > 1 else ABSENT, **at)
    to, waits = rest.pop(0), action in ("try_wait", "test_wait")
    at = memory(d, one, rest.pop(0), "acquire" if waits else "release", "cta")
    if waits:
        parity = ".parity" if "parity" in one.words else ""
        phase, *_ = [d.value(each, kind) for each, kind in zip(rest, ("u32" if parity else "b64", "u32"), strict=False)]
        return d.emit(f"mbarrier.wait{parity}", d.register(to, "pred"), b=phase, **at)
    name = f"mbarrier.{action}" + (".expect_tx" if "expect_tx" in one.words else "")
    count = d.value(rest[0], "u32") if rest else ABSENT
    return d.emit(name, ABSENT if to == "_" else d.register(to, "b64"), b=count, **at)


def cp(d: Decoder, one: Instruction) -> None:
    if one.words[:2] == ("async", "bulk"):
        return _bulk(d, one)
    if one.words[1] == "mbarrier":
        name = "cp.async.mbarrier.arrive" + (".noinc" if "noinc" in one.words else "")
        return d.emit(name, **memory(d, one, one.operands[0]))
    if one.words[1] in ("commit_group", "wait_group", "wait_all"):
        imm = -1 if one.words[1] == "wait_all" else int(one.operands[0], 0) & 0xFFFFFFFF if one.operands else 0
        return d.emit("cp.async.commit_group" if one.words[1] == "commit_group" else "cp.async.wait_group", imm=imm)
    to, source, size, *rest = one.operands
    if int(size, 0) not in ((16,) if one.words[1] == "cg" else (4, 8, 16)):
        raise wrong(one.line, f"cp.async.{one.words[1]} of {size} bytes")
    at = memory(d, one, to)
    start, _, offset = d.address(source, "global")
    policy = _policy(d, one, rest)
    more = [offset, int(size, 0), d.value(rest[0], "b32") if rest else ABSENT, policy]
    at["flags"] = at["flags"] & ~7 | SPACES["shared"]
    return d.emit("cp.async", b=start, **at, more=more)


def _policy(d: Decoder, one: Instruction, rest: list[str]) -> int:
    """The place of the L2 policy of a copy, taken from the end of its operands; ABSENT for a copy without one."""
    return d.value(rest.pop(), "b64") if "L2::cache_hint" in one.words else ABSENT


def _bulk(d: Decoder, one: Instruction) -> None:
    if "prefetch" in one.words:
        start, _, offset = d.address(one.operands[0], "global")
        _policy(d, one, [*one.operands])
        more = [d.value(one.operands[1], "u32"), ABSENT, offset, ABSENT]
        return d.emit("cp.async.bulk.prefetch", b=start, more=more)
    to, source, size, barrier, *rest = one.operands
    address, wide, to_offset = d.address(to, "shared")
    start, _, offset = d.address(source, "global")
    at, barrier_wide, barrier_offset = d.address(barrier, "shared")
    more = [d.value(size, "b32"), at, offset, _policy(d, one, rest), barrier_offset, int(barrier_wide)]
    flags = SPACES["shared"] | (WIDE if wide else 0)
    return d.emit("cp.async.bulk", a=address, b=start, imm=to_offset, flags=flags, more=more)


def fence(d: Decoder, one: Instruction) -> None:
    kind = one.words[0]
    if one.opcode == "membar":
        return d.emit("fence", flags=ORDERS["acq_rel"] << 3 | {"cta": 0, "gl": 1, "sys": 2}[kind] << 6)
    if one.words[:2] == ("proxy", "async"):
        space = next((SPACES[each] for each in one.words if each in SPACES), 0)
        return d.emit("fence.proxy.async", flags=space | SCOPES["gpu"] << 6)
    if kind == "mbarrier_init":
        return d.emit("fence.mbarrier_init")
    order, scope = (next((each for each in one.words if each in names), "") for names in (ORDERS, SCOPES))
    return d.emit("fence", flags=ORDERS.get(order, ORDERS["acq_rel"]) << 3 | SCOPES[scope] << 6)

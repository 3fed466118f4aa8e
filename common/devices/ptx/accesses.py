"""Instructions that access memory, copy it, or order its accesses."""

import re

from common.devices.ptx.arithmetic import signless
from common.devices.ptx.decode import Decoder
from common.devices.ptx.places import LOCAL_WINDOW, SHARED_WINDOW
from common.devices.ptx.rows import ABSENT, Instruction, Place, listed, unknown
from common.devices.ptx.text import WIDTHS, wrong

SPACES = {"global": 1, "shared": 2, "shared::cta": 2, "shared::cluster": 2, "local": 3, "const": 1}
ORDERS = {"weak": 0, "relaxed": 1, "volatile": 6, "acquire": 2, "release": 3, "acq_rel": 4, "nc": 5}
SCOPES = {"cta": 0, "cluster": 0, "gpu": 1, "sys": 2}
WIDE = 1 << 8
HINTS = ("ca", "cg", "cs", "cv", "lu", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first",
         "L1::evict_normal", "L1::evict_unchanged", "L2::64B", "L2::128B", "L2::256B", "L2::cache_hint",
         "L2::evict_last", "L2::evict_first", "L2::evict_normal")  # fmt: skip
PASSED = re.compile(r"\[\s*([\w$%]+)\s*(?:\+\s*0)?\]$")  # place of an argument
VECTORS = ("v2", "v4", "v8")
ELEMENT = {"b": "u", "f": "u", "u": "u", "s": "s"}


def cvta(d: Decoder, one: Instruction) -> None:
    to, source = one.operands
    (space,) = (each for each in one.words if each in SPACES)
    place = d.value(source, "u64")
    if SPACES[space] == 1:
        if d.fixed_copy(to, source) if d.constant(source, "u64") is None and d.variable(source) is None else False:
            return d.name(to, Place(place, 8))
        return d.emit("mov.b64", d.register(to, 8), place, opcode=one.name)
    start = d.number(SHARED_WINDOW if SPACES[space] == 2 else LOCAL_WINDOW, 8)
    return d.emit("window", d.register(to, 8), place, start, imm=-1 if "to" in one.words else 1, opcode=one.name)


def access(one: Instruction, wide: bool, default: str = "weak", scope: str = "gpu") -> int:
    """Flags of an access: state space, memory order, scope, and a bit for a 64-bit address."""
    words = [*one.words[:-1]] if one.type in WIDTHS else [*one.words]
    space = next((SPACES[each] for each in words if each in SPACES), 0)
    order = next((ORDERS[each] for each in words if each in ORDERS), ORDERS[default])
    at = 2 if "volatile" in words else next((SCOPES[each] for each in words if each in SCOPES), SCOPES[scope])
    return space | order << 3 | at << 6 | (WIDE if wide else 0)


def _only(one: Instruction, *allowed: str) -> None:
    known = {*SPACES, *SCOPES, *HINTS, *allowed}
    if any(each not in known for each in one.words[:-1]):
        raise unknown(one)


def _check_count(one: Instruction, names: list[str]) -> None:
    """Raise CompileError unless .v2, .v4 or .v8 is the number of registers; without one it is 1."""
    if len(names) != next((int(word[1:]) for word in one.words if word in VECTORS), 1):
        raise unknown(one, f" with {len(names)} registers")


def ld(d: Decoder, one: Instruction) -> None:
    to, where, *_ = one.operands
    names, width = listed(to), WIDTHS[one.type]
    if "param" in one.words:
        return _ld_param(d, one, names, where)
    _only(one, "weak", "relaxed", "volatile", "acquire", "nc", *VECTORS)
    _check_count(one, names)
    address, wide, offset = d.address(where)
    targets = [d.register(each, d.place(names[0]).bytes) for each in names]
    bits = 8 * d.place(names[0]).bytes
    element = f"{ELEMENT[one.type[0]]}{8 * width}" if 8 * width != bits else f"u{bits}"
    vector = f"v{len(names)}." if len(names) > 1 else ""
    flags = access(one, wide)
    return d.emit(
        f"ld.{vector}{element}.b{bits}", targets[0], address, imm=offset, flags=flags, more=targets[1:], opcode=one.name
    )


def _ld_param(d: Decoder, one: Instruction, names: list[str], where: str) -> None:
    """A parameter of the kernel; 0 for the result of a call, as only those of printf are executed."""
    width = WIDTHS[one.type]
    if (found := PASSED.match(where)) and found[1] in d.passed:
        return d.emit(f"mov.b{8 * width}", d.register(names[0], width), d.number(0, width), opcode=one.name)
    for at, name in enumerate(names):
        place = d.parameter(where, width) if len(names) == 1 else d.parameter(f"{where[:-1]}+{at * width}]", width)
        target = d.place(name)
        if target.bytes == width and d.defined_once(name):
            d.name(name, place)
        else:
            sign = one.type[0] if one.type[0] == "s" else "u"
            d.emit(f"cvt.{sign}{8 * target.bytes}.{sign}{8 * width}", target.at, place.at, opcode=one.name)
    return None


def st(d: Decoder, one: Instruction) -> None:
    where, source, *_ = one.operands
    if "param" in one.words and (found := PASSED.match(where)) and found[1] in d.passed:
        d.passed[found[1]] = d.value(source, one.type)
        return
    _only(one, "weak", "relaxed", "volatile", "release", *VECTORS)
    names, width = listed(source), WIDTHS[one.type]
    _check_count(one, names)
    registers = [d.place(name) for name in names if d.constant(name, one.type) is None and d.variable(name) is None]
    bits = 8 * (registers[0].bytes if registers else max(width, 2))
    if any(8 * each.bytes != bits for each in registers):
        raise unknown(one, f" with the operands {source}")
    places = [d.value(name, f"b{bits}") for name in names]
    address, wide, offset = d.address(where)
    vector = f"v{len(names)}." if len(names) > 1 else ""
    flags = access(one, wide)
    d.emit(
        f"st.{vector}u{8 * width}.b{bits}",
        places[0],
        address,
        imm=offset,
        flags=flags,
        more=places[1:],
        opcode=one.name,
    )


def atom(d: Decoder, one: Instruction) -> None:
    words = [each for each in one.words[:-1] if each not in (*SPACES, *ORDERS, *SCOPES, *HINTS, "noftz")]
    (how,) = words
    rest = list(one.operands)
    to = rest.pop(0) if one.opcode == "atom" else "_"
    address, wide, offset = d.address(rest.pop(0))
    places = [d.value(each, one.type) for each in rest]
    flags = access(one, wide, "relaxed")
    name = f"{one.opcode}.{how}.{one.type}"
    if not d.known(name) and one.type[0] in "us":
        name = f"{one.opcode}.{how}.{signless(one.type)}"
    target = ABSENT if to == "_" else d.register(to, WIDTHS[one.type])
    b, c = [*places, ABSENT][:2]
    d.emit(name, target, address, b, c, imm=offset, flags=flags, opcode=one.name)


def prefetch(d: Decoder, one: Instruction) -> None:
    address, wide, offset = d.address(one.operands[0])
    d.emit("prefetch", a=address, imm=offset, flags=access(one, wide), opcode=one.name)


def mbarrier(d: Decoder, one: Instruction) -> None:
    action = one.words[0]
    rest = list(one.operands)
    if set(one.words) - {*SPACES, *SCOPES, *ORDERS, "b64", "expect_tx", "parity", action}:
        raise unknown(one)
    if action in ("init", "inval", "expect_tx"):
        address, wide, offset = d.address(rest[0])
        count = d.value(rest[1], "b32") if len(rest) > 1 else ABSENT
        flags = access(one, wide, "relaxed", "cta")
        return d.emit(f"mbarrier.{action}", a=address, b=count, imm=offset, flags=flags, opcode=one.name)
    to = rest.pop(0)
    address, wide, offset = d.address(rest.pop(0))
    if action in ("try_wait", "test_wait"):
        parity = "parity" in one.words
        phase = d.value(rest[0], "b32" if parity else "b64")
        name = "mbarrier.wait.parity" if parity else "mbarrier.wait"
        flags = access(one, wide, "acquire", "cta")
        return d.emit(name, d.predicate(to), address, phase, imm=offset, flags=flags, opcode=one.name)
    name = f"mbarrier.{action}" + (".expect_tx" if "expect_tx" in one.words else "")
    count = d.value(rest[0], "b32") if rest else ABSENT
    target = ABSENT if to == "_" else d.register(to, 8)
    flags = access(one, wide, "release", "cta")
    return d.emit(name, target, address, count, imm=offset, flags=flags, opcode=one.name)


def cp(d: Decoder, one: Instruction) -> None:
    if one.words[:2] == ("async", "bulk"):
        return _bulk(d, one)
    if one.words[1] == "mbarrier":
        if one.words[2] != "arrive" or set(one.words[3:-1]) - {"noinc", "shared", "shared::cta"}:
            raise unknown(one)
        address, wide, offset = d.address(one.operands[0])
        name = "cp.async.mbarrier.arrive" + (".noinc" if "noinc" in one.words else "")
        return d.emit(name, a=address, imm=offset, flags=access(one, wide), opcode=one.name)
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
    policy = _policy(d, one, rest)
    more = [source_offset, int(size, 0), d.value(rest[0], "b32") if rest else ABSENT, policy]
    flags = access(one, wide)
    return d.emit("cp.async", a=address, b=start, imm=offset, flags=flags & ~7 | 2, more=more, opcode=one.name)


def _policy(d: Decoder, one: Instruction, rest: list[str]) -> int:
    """The place of the L2 policy of a copy, taken from the end of its operands; ABSENT for a copy without one."""
    return d.value(rest.pop(), "b64") if "L2::cache_hint" in one.words else ABSENT


def _bulk(d: Decoder, one: Instruction) -> None:
    kind = tuple(each for each in one.words[2:] if each != "L2::cache_hint")
    if kind == ("prefetch", "L2", "global"):
        source, size, *_ = one.operands
        start, wide, offset = d.address(source)
        if not wide:
            raise wrong(one.line, f"{source} has 32 bits and lies in global memory")
        more = [d.value(size, "b32"), ABSENT, offset, ABSENT]
        d.emit("cp.async.bulk.prefetch", b=start, more=more, opcode=one.name)
        return
    if kind not in (
        ("shared::cluster", "global", "mbarrier::complete_tx::bytes"),
        ("shared::cta", "global", "mbarrier::complete_tx::bytes"),
    ):
        raise unknown(one)
    to, source, size, barrier, *rest = one.operands
    address, wide, offset = d.address(to)
    start, source_wide, source_offset = d.address(source)
    at, barrier_wide, barrier_offset = d.address(barrier)
    if not source_wide:
        raise wrong(one.line, f"{source} has 32 bits and lies in global memory")
    more = [d.value(size, "b32"), at, source_offset, _policy(d, one, rest), barrier_offset, int(barrier_wide)]
    flags = 2 | (WIDE if wide else 0)
    d.emit("cp.async.bulk", a=address, b=start, imm=offset, flags=flags, more=more, opcode=one.name)


def fence(d: Decoder, one: Instruction) -> None:
    if one.opcode == "membar":
        return d.emit("fence", flags={"cta": 0, "gl": 1, "sys": 2}[one.words[0]] << 6, opcode=one.name)
    if one.words[0] == "proxy":
        if one.words[1] != "async":
            raise unknown(one)
        return d.emit("fence.proxy.async", flags=access(one, False), opcode=one.name)
    if one.words[0] == "mbarrier_init":
        return d.emit("fence.mbarrier_init", opcode=one.name)
    if one.words[0] not in ("acq_rel", "sc", "acquire", "release"):
        raise unknown(one)
    return d.emit("fence", flags=SCOPES[one.words[1]] << 6, opcode=one.name)

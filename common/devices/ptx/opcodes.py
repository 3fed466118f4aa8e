"""Instructions of PTX as operations of the machine: the rule of each opcode, and instructions of a whole warp."""

from common.devices.ptx.accesses import atom, cp, cvta, fence, isspacep, ld, mbarrier, memory, prefetch, st
from common.devices.ptx.arithmetic import Rule, cvt, lop3, mov, plain, setp
from common.devices.ptx.decode import Decoder
from common.devices.ptx.matrices import matrices, mma, wmma
from common.devices.ptx.places import CARRY
from common.devices.ptx.rows import ABSENT, DIRECTLY, INDIRECT, Instruction, listed, unknown
from common.devices.ptx.text import WIDTHS, demangled, wrong


def decode_instruction(d: Decoder, one: Instruction) -> None:
    """Emit the rows of one instruction. Raises CompileError if the executor does not know it."""
    if not one.counts:
        raise unknown(one)
    rule = plain if one.kinds else RULES.get(one.opcode, _carried)
    try:
        if len(one.operands) not in one.counts:
            raise ValueError
        rule(d, one)
    except (ValueError, IndexError, KeyError, OverflowError):
        raise unknown(one, f" with the operands {', '.join(one.operands) or 'left out'}") from None


def _together(d: Decoder, one: Instruction) -> None:
    """shfl, vote, match, redux: the last operand is the member mask."""
    to, *rest = one.operands
    to, _, p = to.partition("|")
    if p and one.opcode != "shfl" and one.words[0] != "all":
        raise ValueError
    kind = "b32" if one.opcode == "vote" else one.type
    mask = d.value(rest.pop(), "u32")
    name = ".".join((one.opcode, *(word for word in one.words if word != "sync")))
    more = [d.register(p, "pred") if p and p != "_" else ABSENT, mask]
    if one.opcode == "shfl":
        places = [d.value(rest[0], kind), d.value(rest[1], "u32"), d.value(rest[2], "u32")]
        return d.emit(name, d.register(to, "b32"), *places, more=more)
    source = d.predicate(rest[0]) if one.opcode == "vote" else d.value(rest[0], kind)
    target = d.register(to, "b32" if one.opcode == "match" else one.type)
    return d.emit(name, target, source, mask, more=more)


REDUCTIONS = {"popc": 1, "and": 2, "or": 3}  # numbers in barriers.cpp


def _bar(d: Decoder, one: Instruction) -> None:
    """bar and barrier.aligned act for the whole warp at once; barrier without .aligned acts lane by lane."""
    words = [each for each in one.words if each not in ("cta", "aligned")]
    if words == ["warp", "sync"]:
        return d.emit("bar.warp", a=d.value(one.operands[0], "u32"))
    aligned = one.opcode == "bar" or "aligned" in one.words
    rest, target, voted, how = [*one.operands], ABSENT, ABSENT, 0
    if words[0] == "red":
        how, target, voted = REDUCTIONS[words[1]], d.register(rest.pop(0), one.type), d.predicate(rest.pop())
    places = [d.value(each, "u32") for each in rest]
    name = "bar.arrive" if words[0] == "arrive" else "bar.sync" if aligned else "barrier.sync"
    opcode = f"{one.name} {rest[0]}"  # with its number, by which counts know the barrier of all threads
    return d.emit(name, target, places[0], [*places, ABSENT][1], voted, imm=how, opcode=opcode)


def _elect(d: Decoder, one: Instruction) -> None:
    to, _, p = one.operands[0].partition("|")
    target = ABSENT if to == "_" else d.register(to, "b32")
    d.emit("elect", target, b=d.value(one.operands[1], "u32"), more=[d.register(p, "pred")])


def _call(d: Decoder, one: Instruction) -> None:
    """A function's body in place of its call. printf is left out; a failed assertion is a trap with its text."""
    name = next((each for each in one.operands if not each.startswith("(")), "")
    passed = [each for part in one.operands if part.startswith("(") for each in listed(part.strip("()")) if each]
    if name == "vprintf":
        return st(d, Instruction("st", ("param", "b32"), (f"[{passed[0]}]", "0"), one.line))
    if name == "__assertfail":
        text, load = d.new(8).at, Instruction("ld", ("param", "u64"), (), one.line)
        d.emit("ld.u64.b64", text, **memory(d, load, f"[{passed[0]}]"), opcode=load.name)
        return d.emit("trap.assert", a=text)
    if name.startswith("%"):
        raise wrong(one.line, f"a call of what {name} points to: {INDIRECT}", DIRECTLY)
    if ["(" in each for each in one.operands] not in ([False], [True, False], [False, True], [True, False, True]):
        raise ValueError
    if made := d.module.functions.get(name):
        return d.call(made(), passed)
    raise wrong(one.line, f"{demangled(name)} is called and has no body here", "call functions of this text only")


def _createpolicy(d: Decoder, one: Instruction) -> None:
    """A hint, not executed; counts tell by its value the lines that a copy asks L2 to keep."""
    for each in one.operands[1:]:
        d.value(each, "f32" if "fractional" in one.words else "b64")
    d.emit("mov.b64", d.register(one.operands[0], "b64"), d.number("L2::evict_last" in one.words, 8))


def _bare(name: str) -> Rule:
    return lambda d, one: d.emit(name)


def _carried(d: Decoder, one: Instruction) -> None:
    """add.cc, addc, subc.cc, madc.hi and their like: a sum of two, or of a product, and the carry or 0."""
    to, *names = one.operands
    bits, opcode, carry = 8 * WIDTHS[one.type], one.opcode[:3], d.place(CARRY).at
    places = [d.value(each, one.type) for each in names]
    if opcode == "mad":
        product, kind = d.new(bits // 8).at, one.type if one.words[0] == "hi" else f"b{bits}"
        d.emit(f"mul.{one.words[0]}.{kind}", product, *places[:2])
        places, opcode = [product, places[2]], "add"
    taken, given = carry if one.opcode[3:] else d.number(0), d.new(4).at
    if "cc" in one.words:
        d.emit(f"{opcode}c.carry.b{bits}", given, places[0], places[1], taken)
    d.emit(f"{opcode}c.b{bits}", d.register(to, one.type), places[0], places[1], taken)
    if "cc" in one.words:
        d.emit("mov.b32", carry, given)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("shfl", "vote", "match", "redux"), _together),
    **dict.fromkeys(("bar", "barrier"), _bar),
    **dict.fromkeys(("fence", "membar"), fence),
    **dict.fromkeys(("atom", "red"), atom),
    **dict.fromkeys(("ldmatrix", "stmatrix"), matrices),
    **{one.__name__: one for one in (cp, cvt, cvta, isspacep, ld, lop3, mbarrier, mma, mov, prefetch, setp, st, wmma)},
    "ret": lambda d, one: d.jump("bra", d.inside[-1][1]) if d.inside else d.emit("exit"),
    "exit": _bare("exit"),
    "elect": _elect,
    "activemask": lambda d, one: d.emit("activemask.b32", d.register(one.operands[0], "b32")),
    "bra": lambda d, one: d.jump("bra", one.operands[0]),
    "call": _call,
    "trap": _bare("trap"),
    "nanosleep": lambda d, one: d.emit("nanosleep", a=d.value(one.operands[0], "u32")),
    "createpolicy": _createpolicy,
    "griddepcontrol": _bare("nop"),  # launches follow one another
}

"""Instructions of PTX as operations of the machine: the rule of each opcode, and instructions of a whole warp."""

from dataclasses import replace

from common.devices.ptx.accesses import atom, cp, cvta, fence, isspacep, ld, mbarrier, memory, prefetch, st
from common.devices.ptx.arithmetic import Rule, approximate, cvt, lop3, mov, plain, selp, setp
from common.devices.ptx.decode import Decoder
from common.devices.ptx.matrices import ldmatrix, mma, stmatrix, wmma
from common.devices.ptx.places import CARRY
from common.devices.ptx.rows import ABSENT, DIRECTLY, INDIRECT, Instruction, listed, unknown
from common.devices.ptx.text import WIDTHS, demangled, wrong


def decode_instruction(d: Decoder, one: Instruction) -> None:
    """Emit the rows of one instruction. Raises CompileError if the executor does not know it."""
    rule = _carried if "cc" in one.words else RULES.get(one.opcode)
    if not rule:
        raise unknown(one)
    try:
        rule(d, one)
    except (ValueError, IndexError, KeyError):
        raise unknown(one, f" with the operands {', '.join(one.operands) or 'left out'}") from None


def _together(d: Decoder, one: Instruction) -> None:
    """shfl, vote, match, redux: the last operand is the member mask."""
    if one.words.index("sync") != (one.opcode == "match"):
        raise unknown(one)
    to, *rest = one.operands
    to, _, p = to.partition("|")
    kind = "b32" if one.opcode == "vote" else one.type
    mask = d.value(rest.pop(), "b32")
    name = ".".join((one.opcode, *(word for word in one.words if word != "sync")))
    more = [d.predicate(p) if p and p != "_" else ABSENT, mask]
    if one.opcode == "shfl":
        places = [d.value(rest[0], kind), d.value(rest[1], "b32"), d.value(rest[2], "b32")]
        return d.emit(name, d.register(to, 4), *places, more=more)
    source = d.predicate(rest[0]) if one.opcode == "vote" else d.value(rest[0], kind)
    target = d.predicate(to) if one.type == "pred" else d.register(to, 4)
    return d.emit(name, target, source, mask, more=more)


REDUCTIONS = {"popc": 1, "and": 2, "or": 3}  # numbers in barriers.cpp


def _bar(d: Decoder, one: Instruction) -> None:
    """bar and barrier.aligned act for the whole warp at once; barrier without .aligned acts lane by lane."""
    words = [each for each in one.words if each not in ("cta", "aligned")]
    if words == ["warp", "sync"]:
        return d.emit("bar.warp", a=d.value(one.operands[0], "b32"))
    aligned = one.opcode == "bar" or "aligned" in one.words
    rest, target, voted, how = [*one.operands], ABSENT, ABSENT, 0
    if words[0] == "red" and words[1:] in (["popc", "u32"], ["and", "pred"], ["or", "pred"]):
        how, to, voted = REDUCTIONS[words[1]], rest.pop(0), d.predicate(rest.pop())
        target = d.register(to, 4) if words[1] == "popc" else d.predicate(to)
    elif words not in (["sync"], ["arrive"]):
        raise unknown(one)
    places = [d.value(each, "b32") for each in rest]
    name = "bar.arrive" if words[0] == "arrive" else "bar.sync" if aligned else "barrier.sync"
    opcode = f"{one.name} {rest[0]}"  # with its number, by which counts know the barrier of all threads
    return d.emit(name, target, places[0], [*places, ABSENT][1], voted, imm=how, opcode=opcode)


def _elect(d: Decoder, one: Instruction) -> None:
    to, _, p = one.operands[0].partition("|")
    target = ABSENT if to == "_" else d.register(to, 4)
    d.emit("elect", target, b=d.value(one.operands[1], "b32"), more=[d.predicate(p)])


def _bra(d: Decoder, one: Instruction) -> None:
    (label,) = one.operands
    d.jump("bra", label)


def _call(d: Decoder, one: Instruction) -> None:
    """A function's body in place of its call. printf is left out; a failed assertion is a trap with its text."""
    name = next(each for each in one.operands if not each.startswith("("))
    passed = [each for part in one.operands if part.startswith("(") for each in listed(part.strip("()")) if each]
    if name == "vprintf":
        return st(d, Instruction("st", ("param", "b32"), (f"[{passed[0]}]", "0"), one.line))
    if name == "__assertfail":
        text, load = d.new(8).at, Instruction("ld", ("param", "u64"), (), one.line)
        d.emit("ld.u64.b64", text, **memory(d, load, f"[{passed[0]}]"), opcode=load.name)
        return d.emit("trap.assert", a=text)
    if name.startswith("%"):
        raise wrong(one.line, f"a call of what {name} points to: {INDIRECT}", DIRECTLY)
    if made := d.module.functions.get(name):
        return d.call(made(), passed)
    raise wrong(one.line, f"{demangled(name)} is called and has no body here", "call functions of this text only")


def _createpolicy(d: Decoder, one: Instruction) -> None:
    """A hint, not executed; counts tell by its value the lines that a copy asks L2 to keep."""
    d.emit("mov.b64", d.register(one.operands[0], 8), d.number("L2::evict_last" in one.words, 8))


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
    d.emit(f"{opcode}c.b{bits}", d.register(to, bits // 8), places[0], places[1], taken)
    if "cc" in one.words:
        d.emit("mov.b32", carry, given)


def _binary(d: Decoder, one: Instruction) -> None:
    if one.type == "relu":  # NVRTC writes it behind the type
        one = replace(one, words=("relu", *one.words[:-1]))
    (_pairs if one.type in ("s16x2", "u16x2") else _numbers)(d, one)


_numbers, _pairs, _unary, _ternary = plain("", "", ""), plain(*["b32"] * 3), plain("", ""), plain("", "", "", "")
RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "copysign"), _binary),
    **dict.fromkeys(("neg", "abs", "not", "cnot", "rcp", "sqrt", "brev"), _unary),
    **dict.fromkeys(("fma", "mad", "sad", "dp2a", "dp4a"), _ternary),
    **dict.fromkeys(("addc", "subc", "madc"), _carried),
    **dict.fromkeys(("shl", "shr"), plain("", "", "u32")),
    **dict.fromkeys(("popc", "clz", "bfind"), plain("u32", "")),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt"), approximate),
    **dict.fromkeys(("shf", "prmt"), plain("", "", "", "u32")),
    **dict.fromkeys(("shfl", "vote", "match", "redux"), _together),
    **dict.fromkeys(("bar", "barrier"), _bar),
    **dict.fromkeys(("fence", "membar"), fence),
    **dict.fromkeys(("atom", "red"), atom),
    "ret": lambda d, one: d.jump("bra", d.inside[-1][1]) if d.inside else d.emit("exit"),
    "exit": _bare("exit"),
    "fns": plain("", "", "u32", "s32"),
    "bmsk": plain("", "u32", "u32"),
    "isspacep": isspacep,
    "bfe": plain("", "", "u32", "u32"),
    "bfi": plain("", "", "", "u32", "u32"),
    "lop3": lop3,
    "mov": mov,
    "set": _binary,  # floats of 16 bits, and of 32 to such
    "setp": setp,
    "selp": selp,
    "cvt": cvt,
    "cvta": cvta,
    "ld": ld,
    "st": st,
    "prefetch": prefetch,
    "elect": _elect,
    "activemask": lambda d, one: d.emit("activemask.b32", d.register(one.operands[0], 4)),
    "mma": mma,
    "wmma": wmma,
    "ldmatrix": ldmatrix,
    "stmatrix": stmatrix,
    "mbarrier": mbarrier,
    "cp": cp,
    "bra": _bra,
    "call": _call,
    "trap": _bare("trap"),
    "nanosleep": _bare("nanosleep"),
    "createpolicy": _createpolicy,
    "griddepcontrol": _bare("nop"),  # launches follow one another
}

"""Text of a PTX module: its kernels as statements, its variables, and the line of each statement."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from math import prod

from common.devices.ptx.lines import Lines, Where
from common.errors import CompileError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE_DIRECTIVE = re.compile(r'((?<![\w"./])\.(?:loc|file)\s[^\n;]*);?')
_STATEMENT = re.compile(r"\s*(?:([\w$%]+)\s*:(?!:)|(\{)|(\})|((?:[^;{}]|\{[^{}]*\})+);)")
_COMMA = re.compile(r",(?![^{\[(]*[}\])])")
_TOP = re.compile(
    r"\s*(?:(?P<section>\.section\s+[\w.$]+\s*\{)"
    r"|(?:\.(?:visible|weak|extern|common)\s+)*\.(?P<kind>entry|func)\s*(?P<head>[^{;]*)(?P<end>[{;])"
    r"|(?P<directive>\.(?:version|target)[^\n]*|\.address_size\s+64\b)"
    r"|(?P<statement>\.[^;{]*(?:\{[^}]*\})?)[ \t]*;)"
)
_ENTRY = re.compile(r"\s*([\w$]+)\s*(?:\((.*?)\))?(.*)", re.DOTALL)
_LIMITS = re.compile(  # between the parameters and the body
    r"(?:\s*\.(?:(?:maxntid|reqntid|reqnctapercluster)\s+[1-9]\d*(?:\s*,\s*\d+){0,2}"
    r"|(?:minnctapersm|maxnreg|maxclusterrank)\s+[1-9]\d*|explicitcluster|noreturn))*\s*"
)
_RESULT = re.compile(r"^\s*\(([^)]*)\)\s*([\w$]+)\s*\(")  # result and name of a function
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+[^,]*?)?([\w$%]+)\s*(?:\[(\d+)\])?\s*$")
_VARIABLE = re.compile(
    r"(?P<words>(?:\.(?:visible|extern|weak|common)\s+)*)\.(?P<space>global|const|shared|local|param)\s+"
    r"(?P<rest>(?:\.attribute\([^)]*\)\s*|\.align\s+\d+\s+)*)\.(?P<type>\w+)\s+(?P<name>[\w$%]+)"
    r"\s*(?P<size>(?:\[\d*\])*)\s*(?:=\s*(?P<value>.*))?$",
    re.DOTALL,
)
MODULE_SPACES = ("global", "const")
WIDTHS = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4,
          "f32": 4, "f16x2": 4, "bf16x2": 4, "s16x2": 4, "u16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
          "pred": 0}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """kind: label, open, close, directive or instruction; text: without its semicolon; line: its source."""

    kind: str
    text: str
    line: Where


@dataclass(frozen=True)
class Variable:
    """space: also param, of a call; bytes: 0 for dynamic shared memory; type: of an element; value: words of its
    initializer."""

    name: str
    space: str
    align: int
    bytes: int
    type: str
    value: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """parameters: {name: (offset, bytes)} in the block of parameters; threads: limit of a block; block: the only one
    allowed; cluster: its number of blocks; statements: gives those of its body, which takes a while. Also a function,
    whose first parameter is its result, if it has one."""

    name: str
    parameters: dict[str, tuple[int, int]]
    parameter_bytes: int
    threads: int | None
    block: tuple[int, ...] | None
    cluster: int
    statements: Callable[[], Iterator[Statement]]

    @cached_property
    def body(self) -> tuple[Statement, ...]:
        """Raises CompileError for a text that is not understood."""
        return tuple(self.statements())


@dataclass
class Module:
    """A parsed module."""

    target: str
    lines: Lines
    kernels: dict[str, Kernel] = field(default_factory=dict)
    functions: dict[str, Callable[[], Kernel] | None] = field(default_factory=dict)  # None: only declared
    variables: dict[str, Variable] = field(default_factory=dict)


def wrong(where: object, what: str, remedy: str = "correct the PTX") -> CompileError:
    return CompileError(f"{where}: {what}", remedy, "")


def parse(text: str, name: str = "PTX") -> Module:
    """The module of a PTX text. name: of the text, in errors. Raises CompileError if the text is no PTX."""
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    text = _LINE_DIRECTIVE.sub(r"\1;", text)
    lines = Lines(name, text)
    target = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if not target:
        raise wrong(name, "there is no .target, so this is no PTX")
    module, at, text = Module(target[1], lines), 0, text.rstrip()
    while at < len(text):
        found = _TOP.match(text, at)
        if not found:
            raise wrong(lines.number(_after_space(text, at)), f"not understood: {_first_line(text[at:])}")
        at = found.end()
        if found["section"]:
            at = _closing(text, at, lines)
        elif found["kind"]:
            head, start = _RESULT.sub(r"\2 (\1, ", found["head"]), at
            at = _closing(text, at, lines) if found["end"] == "{" else at
            made = cache(partial(_kernel, head, text[start : at - 1], lines, start)) if at > start else None
            if found["kind"] == "func":
                module.functions[head.partition("(")[0].strip()] = made
            elif made and made().name not in module.kernels:
                module.kernels[made().name] = made()
            elif made:
                raise wrong(lines.number(start), f"a second kernel {made().name}")
        elif found["statement"] and not re.match(r"\s*\.(loc|file|alias|pragma)\b", found["statement"]):
            variable = variable_of(found["statement"].strip(), lines.number(at))
            module.variables[variable.name] = variable
    return module


def variable_of(text: str, where: object) -> Variable:
    """`.shared .align 16 .b8 tile[1024]`. Raises CompileError."""
    found = _VARIABLE.match(text)
    width = WIDTHS.get(found["type"], 0) if found else 0
    if not found or not width:
        raise wrong(where, f"not understood: {_first_line(text)}")
    value = tuple(each.strip() for each in (found["value"] or "").strip("{} \n\t").split(",") if each.strip())
    count = prod(int(size or len(value)) for size in re.findall(r"\[(\d*)\]", found["size"]))
    given = re.search(r"\.align\s+(\d+)", found["rest"])
    align = int(given[1]) if given else width
    if align.bit_count() != 1 or len(value) > (count if found["space"] in MODULE_SPACES else 0) or count >> 32:
        raise wrong(where, f"not understood: {_first_line(text)}")
    return Variable(found["name"], found["space"], align, width * count, found["type"], value)


def _after_space(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:80]


def _closing(text: str, at: int, lines: Lines) -> int:
    """The place after the brace that closes the one opened before `at`."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.end()
    raise wrong(lines.number(at), "a brace is not closed")


def _kernel(head: str, body: str, lines: Lines, at: int) -> Kernel:
    found = _ENTRY.match(head)
    if not found or not _LIMITS.fullmatch(found[3]):
        raise wrong(lines.number(at), f"not understood: {_first_line(head)}")
    parameters, offset = {}, 0
    for text in found[2].split(",") if (found[2] or "").strip() else ():
        one = _PARAMETER.match(text.strip())
        if not one or not WIDTHS.get(one[2]) or one[3] in parameters or int(one[1] or 1).bit_count() != 1:
            raise wrong(lines.number(at), f"not understood: {_first_line(text)}")
        width = WIDTHS[one[2]] * int(one[4] or 1)
        align = int(one[1] or WIDTHS[one[2]])
        offset = -(-offset // align) * align
        parameters[one[3]] = (offset, width)
        offset += width
    most, cluster = _sizes("maxntid", found[3]), _sizes("reqnctapercluster", found[3]) or (1,)
    block = _sizes("reqntid", found[3])
    body_of = partial(_statements, body, lines, at)
    return Kernel(found[1], parameters, offset, prod(most) if most else None, block, prod(cluster), body_of)


def _sizes(directive: str, head: str) -> tuple[int, ...] | None:
    """Three sizes of a directive such as `.maxntid 32, 4`; None without it."""
    sizes = re.search(rf"\.{directive}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", head)
    return tuple(int(each or 1) for each in sizes.groups()) if sizes else None


def _statements(body: str, lines: Lines, start: int) -> Iterator[Statement]:
    at, where, body = 0, None, body.rstrip()
    directives = lines.directives_before(start)
    while at < len(body):
        found = _STATEMENT.match(body, at)
        if not found:
            raise wrong(lines.number(start + _after_space(body, at)), f"not understood: {_first_line(body[at:])}")
        label, opens, closes, text = found.groups()
        begin, at = start + found.start(found.lastindex or 0), found.end()
        if text is not None and re.match(r"\s*\.loc\s+\d", text):
            where = Where(lines, directives)
            directives += 1
            continue
        line = where or lines.number(begin)
        if label:
            yield Statement("label", label, line)
        elif opens:
            yield Statement("open", "{", line)
        elif closes:
            yield Statement("close", "}", line)
        else:
            words = " ".join(text.split())
            yield Statement("directive" if words.startswith(".") else "instruction", words, line)


def demangled(name: str) -> str:
    """The function's own name in a mangled one, roughly: the last name of the nesting."""
    names: list[str] = []
    at = 0
    while found := re.compile(r"\d+").search(name, at):
        size = int(found[0])
        names.append(name[found.end() : found.end() + size])
        at = found.end() + size
        if not name.startswith("_ZN") or name[at : at + 1] in ("I", "E", ""):
            break
    return names[-1] if names else name


def operands(text: str, splits: int = 0) -> Sequence[str]:
    """The operands of an instruction, split at commas outside brackets; at the first `splits` only, unless 0."""
    return [each.strip() for each in _COMMA.split(text, splits)] if text else []

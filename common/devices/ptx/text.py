"""Text of a PTX module: its kernels as statements, its variables, and the source line of each statement."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import CompileError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE_DIRECTIVE = re.compile(r"^([ \t]*\.(?:loc|file)\b[^\n;]*);?", re.MULTILINE)
_STATEMENT = re.compile(r"\s*(?:([\w$%]+):(?!:)|(\{)|(\})|((?:[^;{}]|\{[^{}]*\})+);)")
_TOP = re.compile(
    r"\s*(?:(?P<section>\.section\s+[\w.$]+\s*\{)"
    r"|(?:\.(?:visible|weak|extern|common)\s+)*\.(?P<kind>entry|func)\s*(?P<head>[^{;]*)(?P<end>[{;])"
    r"|(?P<directive>\.(?:version|target|address_size)[^\n]*)"
    r"|(?P<statement>\.[^;{]*(?:\{[^}]*\})?)[ \t]*;)"
)
_ENTRY = re.compile(r"\s*([\w$]+)\s*(?:\((.*?)\))?(.*)", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s+[^,]*?)?([\w$%]+)\s*(?:\[(\d+)\])?\s*$")
_VARIABLE = re.compile(
    r"(?P<words>(?:\.(?:visible|extern|weak|common)\s+)*)\.(?P<space>global|const|shared|local)\s+"
    r"(?P<rest>(?:\.attribute\([^)]*\)\s*|\.align\s+\d+\s+)*)\.(?P<type>\w+)\s+(?P<name>[\w$%]+)"
    r"\s*(?P<size>(?:\[\d*\])*)\s*(?:=\s*(?P<value>.*))?$",
    re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_STRING_BYTES = re.compile(r"([\w$]+):\s*((?:\.b8\s+[\d,\s]+)+)")
WIDTHS = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4,
          "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 0}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A place in the source, and the call that it was inlined at, if any. function: mangled name."""

    file: str
    line: int
    function: str = ""
    caller: "Line | None" = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def chain(self) -> Iterator["Line"]:
        yield self
        if self.caller:
            yield from self.caller.chain()


@dataclass(frozen=True)
class Statement:
    """kind: label, open, close, directive or instruction; text: without its semicolon; line: its source."""

    kind: str
    text: str
    line: Line


@dataclass(frozen=True)
class Variable:
    """space: global, const, shared or local; bytes: 0 for dynamic shared memory; value: words of its initializer."""

    name: str
    space: str
    align: int
    bytes: int
    width: int
    value: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """parameters: {name: (offset, bytes)} in the block of parameters; threads: limit of a block; cluster: its number
    of blocks."""

    name: str
    parameters: dict[str, tuple[int, int]]
    parameter_bytes: int
    threads: int | None
    cluster: int
    body: tuple[Statement, ...]


@dataclass
class Module:
    """A parsed module."""

    target: str
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


def wrong(where: object, what: str, remedy: str = "correct the PTX") -> CompileError:
    return CompileError(f"{where}: {what}", remedy, "")


def parse(text: str, name: str = "PTX") -> Module:
    """The module of a PTX text. name: of the text, in errors. Raises CompileError if the text is no PTX."""
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    files = {int(n): path for n, path in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.MULTILINE)}
    strings = {
        label: bytes(map(int, re.findall(r"(?<![b\d])\d+", data))) for label, data in _STRING_BYTES.findall(text)
    }
    lines = _Lines(name, text, files, strings)
    text = _LINE_DIRECTIVE.sub(r"\1;", text)
    target = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if not target:
        raise wrong(name, "there is no .target, so this is no PTX")
    module, at = Module(target[1]), 0
    while (at := _after_space(text, at)) < len(text):
        found = _TOP.match(text, at)
        if not found:
            raise wrong(lines.number(at), f"not understood: {_first_line(text[at:])}")
        at = found.end()
        if found["section"]:
            at = _closing(text, at, lines)
        elif found["kind"]:
            if found["end"] == "{":
                end = _closing(text, at, lines)
                if found["kind"] == "entry":
                    kernel = _kernel(found["head"], text[at : end - 1], lines, at)
                    module.kernels[kernel.name] = kernel
                at = end
        elif found["statement"] and not re.match(r"\s*\.(loc|file|alias|pragma)\b", found["statement"]):
            variable = variable_of(found["statement"].strip(), lines.number(at))
            module.variables[variable.name] = variable
    return module


def variable_of(text: str, where: object) -> Variable:
    """`.shared .align 16 .b8 tile[1024]`. Raises CompileError."""
    found = _VARIABLE.match(text)
    if not found or found["type"] not in WIDTHS:
        raise wrong(where, f"not understood: {_first_line(text)}")
    width, count = WIDTHS[found["type"]], 1
    for size in re.findall(r"\[(\d*)\]", found["size"]):
        count *= int(size or 0)
    align = re.search(r"\.align\s+(\d+)", found["rest"])
    value = tuple(each.strip() for each in (found["value"] or "").strip("{} \n\t").split(",") if each.strip())
    return Variable(found["name"], found["space"], int(align[1]) if align else width, width * count, width, value)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:80]


def _closing(text: str, at: int, lines: "_Lines") -> int:
    """The place after the brace that closes the one opened before `at`."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return found.end()
    raise wrong(lines.number(at), "a brace is not closed")


def _kernel(head: str, body: str, lines: "_Lines", at: int) -> Kernel:
    found = _ENTRY.match(head)
    if not found:
        raise wrong(lines.number(at), f"not understood: {_first_line(head)}")
    parameters, offset = {}, 0
    for text in (found[2] or "").split(","):
        if not text.strip():
            continue
        one = _PARAMETER.match(text.strip())
        if not one or one[2] not in WIDTHS:
            raise wrong(lines.number(at), f"not understood: {_first_line(text)}")
        width = WIDTHS[one[2]] * int(one[4] or 1)
        align = int(one[1] or WIDTHS[one[2]])
        offset = -(-offset // align) * align
        parameters[one[3]] = (offset, width)
        offset += width
    most = _product("maxntid|reqntid", found[3])
    cluster = _product("reqnctapercluster", found[3]) or 1
    return Kernel(found[1], parameters, offset, most, cluster, tuple(_statements(body, lines, at)))


def _product(directive: str, head: str) -> int | None:
    """The product of up to three sizes of a directive such as `.maxntid 32, 4`; None without it."""
    sizes = re.search(rf"\.(?:{directive})\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", head)
    return int(sizes[1]) * int(sizes[2] or 1) * int(sizes[3] or 1) if sizes else None


def _statements(body: str, lines: "_Lines", start: int) -> Iterator[Statement]:
    at = 0
    where = None
    while (at := _after_space(body, at)) < len(body):
        found = _STATEMENT.match(body, at)
        if not found:
            raise wrong(lines.number(start + at), f"not understood: {_first_line(body[at:])}")
        label, opens, closes, text = found.groups()
        begin, at = start + found.start(found.lastindex or 0), found.end()
        if text is not None and re.match(r"\s*\.loc\s", text):
            where = lines.of_loc(text)
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


class _Lines:
    """Source lines: from .loc, or the PTX's own where there is none."""

    def __init__(self, name: str, text: str, files: dict[int, str], strings: dict[str, bytes]) -> None:
        self._name, self._files, self._strings = name, files, strings
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._latest: dict[tuple[int, int, int], Line] = {}

    def number(self, at: int) -> Line:
        from bisect import bisect_left

        return Line(self._name, bisect_left(self._ends, at) + 1)

    def of_loc(self, text: str) -> Line:
        """`.loc 2 34 22, function_name $L__info_string2, inlined_at 2 192 3`"""
        own, *rest = text.split(",")
        place = _numbers(own)
        caller, function = None, ""
        for part in rest:
            if "inlined_at" in part:
                at = _numbers(part)
                caller = self._latest.get(at) or Line(self._file(at[0]), at[1])
            elif "function_name" in part:
                function = self._strings.get(part.split()[1].partition("+")[0], b"").rstrip(b"\0").decode()
        line = Line(self._file(place[0]), place[1], function, caller)
        self._latest[place] = line
        return line

    def _file(self, number: int) -> str:
        """A path, relative if it is below the working folder."""
        return self._files.get(number, "?").removeprefix(f"{Path.cwd()}/")


def _numbers(text: str) -> tuple[int, int, int]:
    first, second, third, *_ = (*map(int, re.findall(r"\b\d+\b", text)), 0, 0, 0)
    return first, second, third


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


def operands(text: str) -> Sequence[str]:
    """The operands of an instruction, split at commas outside brackets."""
    return [each.strip() for each in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+", text) if each.strip()]

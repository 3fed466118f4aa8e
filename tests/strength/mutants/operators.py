"""Mutation operators: small systematic changes of device code, each a plausible mistake.

clang-format puts spaces around binary operators only, so that a comparison, a product or a stride is told from a
template, a pointer or a reference by its spaces, and no parser is needed. A change that does not compile is no mutant.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

Edits = Iterator[tuple[int, int, str]]  # start, end and the text that replaces what is between them

_NEST = r"[^()]*"
for _ in range(3):
    _NEST = rf"[^()]*(?:\({_NEST}\)[^()]*)*"
# A name with calls, members, indices and template arguments, or a number.
ATOM = rf"[\w:]+(?:<[\w:, *]+>)?(?:\({_NEST}\)|\[[^\[\]]*\]|(?:\.|->)\w+)*"
_HIDDEN = re.compile(
    r"""//[^\n]* | "[^"\n]*"
    | ^[ \t]*\#(?:[^\\\n]|\\\n|\\.)*  # the preprocessor
    | static_assert\([^;]*; | template\ <[^{;]*?>(?=\ (?:static|struct|DEVICE)|\n) | \b(?:UNROLL|ROLLED)\b""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_HEADS = re.compile(rf"(?:[\s\0]+|else\b|(?:if|for)(?: constexpr)? \({_NEST}\))*")  # before a statement
_DECLARED = re.compile(
    r"""$ | (?:static|constexpr|const|using|typename|struct|enum|alignas|return\ .)
    | [\w:]+(?:<.*>)?\ [*&]?\w+(?:$|[\[{(,]|\ =)""",
    re.DOTALL | re.VERBOSE,
)
_SYNCHRONIZES = re.compile(
    r"""(?:block_barrier|__syncthreads|__syncwarp|named_\w+|copy_wait<.*?>|copy_commit|fence\w*|mbarrier_\w+|store_release
    | spin_until | wait_at_barrier | wait_for_phases? | \w+::template\ barrier<.*?>)\(""",
    re.VERBOSE,
)


def code(text: str) -> str:
    """`text` with a control character in place of everything that is not mutated; its length and lines stay.

    Not mutated: comments, strings, the preprocessor's lines, static assertions and template headers (they only fail to
    compile).
    """
    return _HIDDEN.sub(lambda found: re.sub(r"[^\n]", "\0", found[0]), text)


def replaced(pattern: str, *changes: str) -> Callable[[str], Edits]:
    """Each match of `pattern`, also where matches overlap, replaced by each of `changes` (with \\1 for its groups)."""
    compiled = re.compile(pattern, re.MULTILINE)

    def edits(text: str) -> Edits:
        found = compiled.search(text)
        while found:
            yield from ((found.start(), found.end(), found.expand(change)) for change in changes)
            found = compiled.search(text, found.start() + 1)

    return edits


def named(changes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Edits]:
    """Each name replaced by each name that is mistaken for it."""
    rules = [replaced(rf"(?<![\w:]){name}(?![\w:])", *others) for name, others in changes.items()]
    return lambda text: (edit for rule in rules for edit in rule(text))


def each(changes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Edits]:
    """Each binary operator replaced by each of the others."""
    rules = [replaced(rf"(?<=\s){old}(?=\s)", *new) for old, new in changes.items()]
    return lambda text: (edit for rule in rules for edit in rule(text))


def _integers(text: str) -> Edits:
    for found in re.finditer(r"(?<![\w.])(\d+)(u?)(?![\w.])", text):
        value = int(found[1])
        for other in (value + 1, value - 1):
            yield found.start(), found.end(), f"{other}{found[2]}" if other >= 0 else f"({other})"


def _indices(text: str) -> Edits:
    """One added to each index; not to the size of an array where it is declared."""
    for found in re.finditer(r"(?<=[\w\])])\[(?=[^\]]*\])", text):
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        if not re.fullmatch(r"\s*(?!return )(?:alignas\(\d+\) )?(?:const )?[\w:]+ (?:char )?\*?[\w\[\]:, ]*", before):
            yield found.start(), found.end(), "[1 + "


def _parts(text: str, start: int, separators: str) -> list[tuple[int, int]]:
    """The spans between `separators` from `start`, which is after an opening bracket, to the closing one."""
    depth, spans, begin = 0, [], start
    for at in range(start, len(text)):
        if not depth and text[at] in separators + ")]}":
            spans.append((begin, at))
            if text[at] in ")]}":
                return spans
            begin = at + 1
        depth += (text[at] in "([{") - (text[at] in ")]}")
    return []


def _swapped_arguments(text: str) -> Edits:
    for found in re.finditer(r"[\w>]\((?=[^)])|[({=]\s*\{(?=[^}])|\w\{(?=[^}])", text):
        spans = _parts(text, found.end(), ",")
        for (a, b), (c, d) in pairwise(spans):
            first, second = text[a:b], text[c:d]
            different = first.strip() != second.strip() and "c" not in (first.strip(), second.strip())
            if different and ";" not in first + second:
                lead, tail = (part[: len(part) - len(part.lstrip())] for part in (first, second))
                yield a, d, f"{lead}{second.strip()},{tail}{first.strip()}"


def _conditions(text: str) -> Edits:
    for found in re.finditer(r"\bif (?:constexpr )?\(", text):
        _, end = (_parts(text, found.end(), "") or [(0, 0)])[0]
        for value in ("true", "false"):
            yield found.end(), end, value
    for found in re.finditer(r" \? ", text):
        yield found.start(), found.end(), " && false ? "
        yield found.start(), found.end(), " || true ? "


def _for_headers(text: str) -> Iterator[list[tuple[int, int]]]:
    for found in re.finditer(r"\bfor \(", text):
        yield _parts(text, found.end(), ";")


def _strides(text: str) -> Edits:
    for spans in _for_headers(text):
        start, end = spans[-1]
        for pattern, change in ((r" \+= (.*)", r" += 2 * (\1)"), (r" \+\+(\w+)", r" \1 += 2")):
            if re.fullmatch(rf".*{pattern}", text[start:end], re.DOTALL):
                yield start, end, re.sub(pattern, change, text[start:end], flags=re.DOTALL)
        if found := re.fullmatch(r"( \w+ [*/]= )2", text[start:end]):
            yield start, end, f"{found[1]}4"


def _loops(text: str) -> Edits:
    for spans in _for_headers(text):
        if len(spans) == 3 and text[slice(*spans[1])].strip():
            yield *spans[1], " false"


def _statements(text: str, synchronizing: bool) -> Edits:
    """Each statement deleted that is no declaration and returns no value."""
    heads = {at for spans in _for_headers(text) for begin, end in spans for at in range(begin, end + 1)}
    for end in (found.start() for found in re.finditer(";", text) if found.start() not in heads):
        start, depth = end, 0
        while start and (depth > 0 or text[start - 1] not in ";{}"):
            start -= 1
            depth += (text[start] in ")]}") - (text[start] in "([{")
        head = _HEADS.match(text, start)
        start = head.end() if head else start
        statement = text[start:end]
        if not _DECLARED.match(statement) and bool(_SYNCHRONIZES.match(statement)) == synchronizing:
            yield start, end, re.sub(r"[^\n]", "", statement)


def _weakened(text: str) -> Edits:
    """Memory orders weakened, by CUDA's own atomics."""
    call = rf"\b{{}}\(({_NEST}?), ({_NEST})\)".format
    with_order = "__nv_atomic_{}, __NV_ATOMIC_{}, __NV_THREAD_SCOPE_DEVICE)".format
    orders = ("RELAXED", "ACQUIRE", "RELEASE")
    yield from replaced(call("add_acq_rel"), *(with_order("fetch_add(\\1, \\2", each) for each in orders))(text)
    yield from replaced(call("store_release"), with_order("store_n(\\1, \\2", "RELAXED"))(text)
    load = with_order("load_n(\\1", "RELAXED")
    yield from replaced(rf"load_acquire\(({_NEST})\)", load, "*const_cast<const volatile unsigned *>(\\1)")(text)
    yield from replaced(r"block_barrier\(\)", "__syncwarp()")(text)
    narrowed = r"(?:Self::template barrier<[^;]*>|Base::template after<S>|grid_barrier|epoch_barrier)\((?=c, )[^;]*;"
    yield from replaced(narrowed, "block_barrier();")(text)


_OTHER = {  # each operator and its replacements
    r"\+": ("-",),
    "-": ("+",),
    r"\*": ("+", "/"),
    "/": ("*",),
    "%": ("/", "+"),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    r"\|": ("&",),
    r"\^": ("|",),
    "&&": ("||",),
    r"\|\|": ("&&",),
    r"\+=": ("-=", "="),
    "-=": ("+=", "="),
}
_NAMES = {
    "model::heads": ("model::kv_heads",),
    "model::kv_heads": ("model::heads",),
    "model::hidden": ("model::query", "model::intermediate"),
    "model::query": ("model::hidden", "model::kv"),
    "model::intermediate": ("model::hidden",),
    "model::kv": ("model::query",),
    "model::head_dim": ("model::hidden", "rope_pairs"),
    "model::positions": ("(c.position + 1)",),
    "rope_pairs": ("model::head_dim",),
    "block_warps": ("block_threads", "32"),
    "block_threads": ("block_warps", "256"),
    r"gridDim\.x": ("block_warps", "8"),
    r"blockIdx\.x": ("threadIdx.x", "0"),
    r"threadIdx\.x": ("lane()", "0"),
    r"lane\(\)": ("threadIdx.x", "0"),
    r"warp\(\)": ("lane()", "0"),
    "layer": ("0",),
    "fmaxf": ("fminf",),
    "expf": ("exp2f",),
    "rint": ("trunc",),
    "bf16_low": ("bf16_high",),
    "bf16_high": ("bf16_low",),
}


@dataclass(frozen=True)
class Operator:
    """A kind of change; `edits` yields every place of a text, as `code` gives it, with what replaces it."""

    name: str
    edits: Callable[[str], Edits]


OPERATORS = (
    Operator("stride doubled", _strides),
    Operator("boundary moved", each({"<": ("<=",), "<=": ("<",), ">": (">=",), ">=": (">",)})),
    Operator("bound off by one", replaced(r"(?<=\s)([<>]=?)(?=\s)", r"\1 -1 +")),
    Operator("equality inverted", each({"==": ("!=",), "!=": ("==",)})),
    Operator("index off by one", _indices),
    Operator("constant changed", _integers),
    Operator("float constant doubled", replaced(r"(?<![\w.])(\d+\.\d+)(f?)\b", r"(2 * \1\2)")),
    Operator("mask narrowed", replaced(r"(?<!\w)(0x[0-9a-f]+u)", r"(\1 >> 1)", r"(\1 << 1)")),
    Operator("synchronization dropped", partial(_statements, synchronizing=True)),
    Operator("order or scope weakened", _weakened),
    Operator(
        "operands swapped",
        replaced(rf"(?<![\w.:>])({ATOM}) ([-/%]|<<|>>|<=?|>=?) ({ATOM})(?= |[;,)\]}}])", r"\3 \2 \1"),
    ),
    Operator("arguments swapped", _swapped_arguments),
    Operator("branch forced", _conditions),
    Operator("loop skipped", _loops),
    Operator(
        "initial value changed",
        replaced(r"(?<=\b)((?:int|unsigned|size_t|float|double|auto) \w+ = )(?=\D)", r"\g<1>1 + "),
    ),
    Operator("arithmetic replaced", each(_OTHER)),
    Operator("sign dropped", replaced(r"(?<=[\s(])([-!~])(?=[\w(])", "")),
    Operator("name replaced", named(_NAMES)),
    Operator("statement deleted", partial(_statements, synchronizing=False)),
)

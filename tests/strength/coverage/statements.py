"""Statements of a file of CUDA text: gcov has no data on a template without an instance."""

import re
from collections.abc import Iterator

_BLANK = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:\\\n|[^\n])*', re.MULTILINE | re.DOTALL)
# Up to its own #else or #endif, past inner conditions.
_CUDA = re.compile(r"^#ifdef __CUDACC__$(?:^#if.*?^#endif$|.)*?^#(?:else|endif)$", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"(?<!if )\bconstexpr\b")  # a function that the compiler evaluates
_SCOPE = re.compile(r"\b(struct|class|enum|union|namespace)\b")
_BODY = re.compile(r"(\)|\belse|\bconst|\bdo)\s*$")
# Text without code, and prefixes of a statement.
_DECLARATION = re.compile(r"(using|static_assert|static constexpr|constexpr|struct|template|typedef|enum)\b")
_PREFIX = re.compile(r"\s*(UNROLL\b|ROLLED\b|else\b|if constexpr\s*\((?:[^()]|\([^()]*\))*\))")


def statements(text: str) -> Iterator[range]:
    """The lines of each statement in the body of a function; of what the host does not compile, the `#ifdef` alone."""
    for half in _CUDA.finditer(text):
        first = text.count("\n", 0, half.start()) + 1
        yield range(first, first + 1)
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    text = _BLANK.sub(blank, _CUDA.sub(blank, text))
    scopes, parentheses, begin = ["scope"], 0, 0
    for at, mark in ((match.start(), match[0]) for match in re.finditer(r"[(){};]", text)):
        if mark in "()":
            parentheses += 1 if mark == "(" else -1
        elif mark == "{" and not _BODY.search(text[:at]) and not _SCOPE.search(text[begin:at]):
            scopes.append("value")
        elif mark == "}" and scopes[-1] == "value":
            scopes.pop()
        elif mark == ";" and (parentheses or scopes[-1] == "value"):
            pass
        else:
            if scopes[-1] == "body" and (span := _code(text, begin, at)):
                yield span
            if mark == "{":
                code = _BODY.search(text[:at]) and not _CONSTANT.search(text[begin:at])
                scopes.append("body" if code else "scope")
            elif mark == "}":
                scopes.pop()
            begin = at + 1


def _code(text: str, begin: int, end: int) -> range | None:
    """Lines of the statement in text[begin:end]; None for what leaves no code."""
    while prefix := _PREFIX.match(text, begin, end):
        begin = prefix.end()
    code = text[begin:end].strip()
    if not code or _DECLARATION.match(code) or not re.search(r"[(={]|^(return|continue|break)\b|\+\+|--", code):
        return None
    first = text.index(code[0], begin)
    return range(text.count("\n", 0, first) + 1, text.count("\n", 0, end) + 2)

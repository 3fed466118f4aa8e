"""Source lines of a PTX text: from its .loc directives, or its own where there are none. Read when a report asks."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r'(?<![\w"./])\.loc\s+\d[^\n;]*')
_STRING_BYTES = re.compile(r"([\w$]+):\s*((?:\.b8\s+[\d,\s]+)+)")


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


class Where(NamedTuple):
    """Reference to a line, resolved when asked. number: a .loc directive's; negative: a line's of the PTX text."""

    lines: "Lines"
    number: int

    @property
    def line(self) -> Line:
        return self.lines.line(self.number)

    def __str__(self) -> str:
        return str(self.line)


class Lines:
    """Source lines of a text without comments. name: of the text, in errors."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self._text = name, text
        self._latest: dict[tuple[int, int, int], Line] = {}

    def number(self, at: int) -> Where:
        """The line of the text itself that has the character `at`."""
        return Where(self, -1 - bisect_left(self._ends, at))

    def directives_before(self, at: int) -> int:
        """Number of .loc directives that begin before the character `at`."""
        return bisect_left(self._starts, at)

    def line(self, number: int) -> Line:
        """The line of a `Where.number`."""
        return Line(self.name, -number) if number < 0 else self._directives[number]

    @cached_property
    def _ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self._text)]

    @cached_property
    def _starts(self) -> list[int]:
        return [found.start() for found in _LOC.finditer(self._text)]

    @cached_property
    def _files(self) -> dict[int, str]:
        return {int(number): path for number, path in _FILE.findall(self._text)}

    @cached_property
    def _strings(self) -> dict[str, bytes]:
        return {
            label: bytes(map(int, re.findall(r"(?<![b\d])\d+", data)))
            for label, data in _STRING_BYTES.findall(self._text)
        }

    @cached_property
    def _directives(self) -> list[Line]:
        return [self._of_loc(text) for text in _LOC.findall(self._text)]

    def _of_loc(self, text: str) -> Line:
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

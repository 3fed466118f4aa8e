"""Loops of a kernel's text, each made to count the turns of every execution: for a coverage build.

gcov counts how often a line is executed in all, not that a loop took two turns twice and never three. So every
`for (init; condition; step)` becomes `switch (turns::Loop<struct NAME> NAME_; 0) default: for (init;
NAME_.more(condition, others); step)`: the same loop, and its Loop calls a function for each class of executions when it
ends (turns.hpp). gcov counts these functions, and no line moves.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from common.errors import LabError

CLASSES = {
    "none": "0 turns",
    "one": "1 turn",
    "two": "2 turns",
    "several": "more turns",
    "partial": "partial last turn",
}
HEADER = '#include "turns.hpp"\n'
# What tells the threads of a warp, of a block, or the blocks apart, from the inside out.
MEMBERS = (r"\blane\(\)", r"port::thread\(\)", r"\bwarp\(\)", r"port::block\(\)")
_SKIPPED = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*'
_TOKEN = re.compile(
    rf"(?P<skipped>{_SKIPPED})|\b(?P<loop>for|while|do)\b|(?P<mark>[(){{}}\[\];])", re.MULTILINE | re.DOTALL
)
_LINE = re.compile(r'#line (\d+) "([^"]+)"')


@dataclass(frozen=True)
class Loop:
    """One loop of the text.

    name     identifies it in gcov's data
    file, line   where it begins, by the text's line directives
    strided  whether the threads of a group begin at different places and go on by steps of the whole group
    """

    name: str
    file: str
    line: int
    strided: bool

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(CLASSES) if self.strided else tuple(CLASSES)[:-1]


def count_turns(text: str) -> tuple[str, list[Loop]]:
    """`text` with every loop counting its turns, and its loops. Raises LabError for a loop of another form."""
    pieces, done, place = [HEADER], 0, _places(text)
    loops: list[Loop] = []
    for match in _TOKEN.finditer(text):
        if not match["loop"]:
            continue
        file, line = place(match.start())
        number = sum((each.file, each.line) == (file, line) for each in loops)
        name = f"loop_{re.sub('[^A-Za-z0-9]', '_', file)}_{line}_{number}"
        parts = [] if match["loop"] == "do" else _parts(text, match.end())
        if match["loop"] == "for" and len(parts) == 1:  # over an array of constant length
            continue
        if len(parts) != (3 if match["loop"] == "for" else 1):
            cause = f"{file}:{line}: coverage cannot count the turns of this loop"
            raise LabError(cause, "write it as for (init; condition; step)")
        (begin, end), others = parts[-2:][0], ""
        if condition := text[begin:end].strip():
            others = _others(text[slice(*parts[0])], text[begin:end]) if match["loop"] == "for" else ""
            counted = f" {name}_.more({', '.join(filter(None, (text[begin:end], others)))})"
        else:  # endless: it has begun its first turn, and its step begins each further one
            begin, end = parts[2]
            counted = f"{text[begin:end]}{',' if text[begin:end].strip() else ''} {name}_.turn()"
        first = "" if condition else "(1)"
        pieces += [text[done : match.start()], f"switch (turns::Loop<struct {name}> {name}_{first}; 0) default: "]
        pieces += [text[match.start() : begin], counted]
        done = end
        loops.append(Loop(name, file, line, bool(others)))
    return "".join([*pieces, text[done:]]), loops


def _others(init: str, condition: str) -> str:
    """Expression that is true if another thread of the group goes on; "" where all of a group begin at one place.

    A thread that starts at `f(lane())` and is now at `i` stands where lane 0 is at `i - (f(lane()) - f(0))`.
    """
    begins, goes_on = (
        re.fullmatch(r"\s*[\w\s]+?(\w+)\s*=(.*)", init, re.DOTALL),
        re.match(r"\s*(\w+)\s*<([^=&|]+)$", condition),
    )
    for member in MEMBERS:
        # `thread() - 1` where thread 0 does something else: the group begins with thread 1.
        found = begins and re.search(rf"\({member} - \w+\)|{member}", begins[2])
        if begins and found and goes_on and goes_on[1] == begins[1]:
            start = " ".join(begins[2].split())
            first = " ".join(begins[2].replace(found[0], "0").split())
            return f"{begins[1]} - (({start}) - ({first})) < {goes_on[2]}"
    return ""


def _parts(text: str, at: int) -> list[tuple[int, int]]:
    """Begin and end of each part between the semicolons of the parenthesis that opens after `at`."""
    parts, begin, depth = [], 0, 0
    for match in _TOKEN.finditer(text, at):
        mark = match["mark"]
        if mark and mark in "([{":
            depth += 1
            begin = begin or match.end()
        elif mark and mark in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and mark == ";"):
            parts.append((begin, match.start()))
            begin = match.end()
        if depth == 0:
            break
    return parts


def _places(text: str) -> Callable[[int], tuple[str, int]]:
    """File and line of each offset in `text`, by its line directives."""
    starts, places, at, file, number = [], [], 0, "", 0
    for line in text.splitlines(keepends=True):
        starts.append(at)
        places.append((file, number))
        at, number = at + len(line), number + 1
        if directive := _LINE.match(line):
            number, file = int(directive[1]), directive[2]
    return lambda offset: places[bisect_right(starts, offset) - 1]

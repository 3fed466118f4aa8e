"""Status of a launch, and its report with source lines."""

import re

from common.devices.ptx.lines import Line
from common.devices.ptx.program import PtxKernel

FINISHED, DEADLOCKED, TIMED_OUT, TRAPPED, FAULTED, RACED = range(6)  # `Status` of machine.hpp
MOST_RACES = 8  # pairs of lines in a report
_PC = re.compile(r"\{pc (\d+)\}")


def with_lines(report: str, kernel: PtxKernel) -> str:
    """The report with source lines for each `{pc 12}`.

    Of races between the same lines the first is kept, and of others the first MOST_RACES.
    """
    named = {pc: _place(kernel.line(int(pc)), kernel.file) for pc in _PC.findall(report)}
    shown, pairs = list[str](), set[frozenset[str]]()
    for text in report.splitlines():
        places = [named[pc] for pc in _PC.findall(text)]
        if len(places) > 1:
            if frozenset(places) in pairs:
                continue
            pairs.add(frozenset(places))
        if len(places) < 2 or len(pairs) <= MOST_RACES:
            shown.append(_PC.sub(lambda found: named[found[1]], text))
    more = len(pairs) - MOST_RACES
    return "\n".join([*shown, *([f"and races between {more} more pairs of lines"] if more > 0 else [])])


def _place(line: Line, file: str) -> str:
    """The line and, if it was inlined into other files, the call in `file`, or else in the nearest two of them."""
    calls: dict[str, str] = {}
    for one in line.chain():
        if one.file != line.file:
            calls.setdefault(one.file, str(one))
    shown = calls.get(file) or ", ".join([*calls.values()][:2])
    return f"{line} (from {shown})" if shown else str(line)

"""Status of a launch, and its report with source lines."""

import re

from common.devices.ptx.program import PtxKernel

FINISHED, DEADLOCKED, TIMED_OUT, TRAPPED, FAULTED, RACED = range(6)  # `Status` of machine.hpp
MOST_RACES = 8  # pairs of lines in a report


def with_lines(report: str, kernel: PtxKernel) -> str:
    """The report with a source line for each `{pc 12}`, and the line of the stage's code it was inlined into.

    Of races between the same lines the first is kept, and of others the first MOST_RACES.
    """
    places: list[str] = []

    def place(found: re.Match[str]) -> str:
        here = kernel.line(int(found[1]))
        names = [str(one) for one in here.chain()]
        callers = [name for name in dict.fromkeys(names[1:]) if name.partition(":")[0] != names[0].partition(":")[0]]
        places.append(names[0] + (f" (from {callers[0]})" if callers else ""))
        return places[-1]

    lines: dict[object, str] = {}
    for number, text in enumerate(report.splitlines()):
        places.clear()
        line = re.sub(r"\{pc (\d+)\}", place, text)
        lines.setdefault(frozenset(places) if len(places) > 1 else number, line)
    for one in [key for key in lines if isinstance(key, frozenset)][MOST_RACES:]:
        lines[one] = "more"
    shown = [line for line in lines.values() if line != "more"]
    more = len(lines) - len(shown)
    return "\n".join([*shown, *([f"and races between {more} more pairs of lines"] if more else [])])

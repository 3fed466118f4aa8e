"""Source lines of code addresses in a compiled kernel, by addr2line, which comes with g++."""

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PORT = "common/kernel/port.cuh"
UNKNOWN = "a line that the debug information does not name"
_CODE = re.compile(r"\{(code|called from) ([0-9a-f]+)\}")  # as code_name in runtime/faults.cpp writes an instruction
_SUSPICION = re.compile(r"^(.*): \{code ([0-9a-f]+)\} \{code ([0-9a-f]+)\}$", re.M)
_PLACE = re.compile(r"^(?:\./)*(\S+?:[1-9]\d*)")


def with_lines(report: str, binary: Path) -> str:
    """The report with source lines in place of addresses.

    {code 1a2b} becomes `file:line`; it and {called from 1a2b} also name the variant that called that line, if any.
    """

    def line(found: re.Match[str]) -> str:
        chain = places(binary, found[2])
        return (chain[0] if found[1] == "code" else "") + called(chain)

    return _CODE.sub(line, report)


def called(chain: Sequence[str]) -> str:
    """` called at ` the first variant in a chain of calls, innermost first; "" if it comes first, or without one."""
    variant = next((place for place in chain if place.startswith("variants/")), chain[0])
    return f" called at {variant}" if variant != chain[0] else ""


def in_text(place: str) -> bool:
    """True for `file:line` of the kernel's text outside port.cuh: its files are relative, and not C++'s own."""
    file = place.partition(":")[0]
    return not file.startswith(("/", "..", "<")) and not file.endswith((".cpp", ".hpp")) and file != PORT


def separate_places(report: str, binary: Path) -> str:
    """Report of threads that met at different places in a finished launch; "" if each pair is one place in the source.

    report: lines `who: {code 1} {code 2}`. The compiler may copy a line, so only the chains of calls tell.
    """
    for who, *codes in _SUSPICION.findall(report):
        first, second = (places(binary, code) for code in codes)
        if first != second:
            common = 0  # outer calls in both chains
            while first[-1 - common :] == second[-1 - common :]:
                common += 1
            own = (" called at ".join(each[: len(each) - common]) or each[0] for each in (first, second))
            return f"{who} meet at different places: {' and '.join(own)}"
    return ""


@cache
def places(binary: Path, address: str) -> list[str]:
    """`file:line` of the inlined calls that hold an instruction, innermost first, outside port.cuh; never empty."""
    try:
        done = subprocess.run(["addr2line", "-i", "-e", str(binary), address], capture_output=True, text=True)
    except OSError:
        return [UNKNOWN]
    found = [match[1] for match in map(_PLACE.match, done.stdout.splitlines()) if match]
    return list(filter(in_text, found)) or [UNKNOWN]

"""Source lines of code addresses in a compiled kernel, by addr2line, which every g++ brings along."""

import re
import subprocess
from pathlib import Path

from common.devices.tsan_report import in_text

UNKNOWN = "a line that the debug information does not name"
_ADDRESS = re.compile(r"\{code ([0-9a-f]+)\}")  # as runtime/faults.cpp writes the address of an instruction
_PLACE = re.compile(r"^(?:\./)*(\S+?):(\d+)")


def with_lines(report: str, binary: Path) -> str:
    """The report with every code address replaced by `file:line` of the kernel's text."""
    return _ADDRESS.sub(lambda found: places(binary, found[1])[0], report)


def places(binary: Path, address: str) -> list[str]:
    """`file:line` of the inlined calls that hold an instruction, innermost first, outside port.cuh; never empty."""
    try:
        done = subprocess.run(["addr2line", "-i", "-e", str(binary), address], capture_output=True, text=True)
    except OSError:
        return [UNKNOWN]
    found = [(match[1], match[2]) for match in map(_PLACE.match, done.stdout.splitlines()) if match]
    return [f"{file}:{line}" for file, line in found if in_text(file) and line != "0"] or [UNKNOWN]

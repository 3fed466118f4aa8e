"""The sanitizers of g++ that the host device can build a kernel with, and what the last two of them report."""

import re
from dataclasses import dataclass

from common.devices.host.tsan_report import frames

FRAME = '"    #%n %f %S %M"'  # as ThreadSanitizer prints a frame
STOPPED = 66  # exit status after a report


@dataclass(frozen=True)
class Sanitizer:
    """Build and start of a kernel with one sanitizer.

    title: its name in g++'s documentation. annotate: option for the runtime, which is not instrumented itself
    (runtime/sanitizer.hpp); instrument: options for the kernel. variable, options: of the environment. library: its
    package on Debian. suffix: of the device's name.
    """

    title: str
    annotate: str
    instrument: tuple[str, ...]
    variable: str
    options: str
    library: str
    suffix: str


SANITIZERS = {
    "thread": Sanitizer(
        "ThreadSanitizer",
        "-DLAB_TSAN",
        ("-fsanitize=thread",),
        "TSAN_OPTIONS",
        f"exitcode={STOPPED} report_thread_leaks=0 detect_deadlocks=0 print_summary=0",
        "libtsan2",
        "tsan",
    ),
    "address": Sanitizer(
        "AddressSanitizer",
        "-DLAB_ASAN",
        ("-fsanitize=address",),
        "ASAN_OPTIONS",
        f"exitcode={STOPPED} detect_leaks=0 print_summary=0 stack_trace_format={FRAME}",
        "libasan8",
        "asan",
    ),
    "undefined": Sanitizer(
        "UndefinedBehaviorSanitizer",
        "-DLAB_UBSAN",
        ("-fsanitize=undefined", "-fno-sanitize-recover=all"),
        "UBSAN_OPTIONS",
        f"exitcode={STOPPED} print_stacktrace=1 print_summary=0 stack_trace_format={FRAME}",
        "libubsan1",
        "ubsan",
    ),
}

_ADDRESS = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)(?:.*\n)+?(READ|WRITE) of size (\d+)")
_UNDEFINED = re.compile(r"runtime error: (.*)")
_WHO = re.compile(r"^by thread \d+ of block .*", re.M)


def finding(text: str) -> str:
    """The report of AddressSanitizer or UndefinedBehaviorSanitizer: error, file:line, thread and stage; "" if none."""
    if match := _ADDRESS.search(text):
        what = f"{match[1]}, {'a read' if match[2] == 'READ' else 'a write'} of {match[3]} bytes"
    elif match := _UNDEFINED.search(text):
        what = match[1]
    else:
        return ""
    places = frames(text[match.start() :])
    variant = next((place for place in places[1:] if place.startswith("variants/")), "")
    called = f" called at {variant}" if variant and not places[0].startswith("variants/") else ""
    who = _WHO.search(text)
    return f"{what} at {places[0] if places else 'an unknown line'}{called}{f' {who[0]}' if who else ''}"

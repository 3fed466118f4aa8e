"""The sanitizers of g++: how a kernel is built with each, and the parsers of their reports."""

import re
from dataclasses import dataclass

from common.devices.host.lines import called, in_text
from common.model.stages import STAGES

STOPPED = 66  # exit status after a report
_SAME_FRAME = 'stack_trace_format="    #%n %f %S %M"'  # as ThreadSanitizer prints a frame


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
        f"exitcode={STOPPED} detect_leaks=0 print_summary=0 {_SAME_FRAME}",
        "libasan8",
        "asan",
    ),
    "undefined": Sanitizer(
        "UndefinedBehaviorSanitizer",
        "-DLAB_UBSAN",
        ("-fsanitize=undefined", "-fno-sanitize-recover=all"),
        "UBSAN_OPTIONS",
        f"exitcode={STOPPED} print_stacktrace=1 print_summary=0 {_SAME_FRAME}",
        "libubsan1",
        "ubsan",
    ),
}

_ADDRESS = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)(?:.*\n)+?(READ|WRITE) of size (\d+)")
_UNDEFINED = re.compile(r"runtime error: (.*)")
_WHO = re.compile(r"^by thread \d+ of block .*", re.M)
_ACCESS = re.compile(
    r"^  (?:Previous )?((?:atomic )?(?:read|write)) of size \d+ at \S+ by (?:thread (T\d+)|main thread)", re.I | re.M
)
_FRAME = re.compile(r"^    #\d+ .* (\S+?):(\d+)(?::\d+)? \(", re.M)
_NAME = re.compile(r"^  Thread (T\d+) '([^']+)'", re.M)
_STAGE = re.compile(r"perform<\(Stage\)(\d+)>")


def finding(text: str) -> str:
    """The report of AddressSanitizer or UndefinedBehaviorSanitizer: error, file:line, thread and stage; "" if none."""
    if match := _ADDRESS.search(text):
        what = f"{match[1]}, {'a read' if match[2] == 'READ' else 'a write'} of {match[3]} bytes"
    elif match := _UNDEFINED.search(text):
        what = match[1]
    else:
        return ""
    who = _WHO.search(text)
    return f"{what} at {_place(text[match.start() :]) or 'an unknown line'}{f' {who[0]}' if who else ''}"


def data_races(text: str) -> list[str]:
    """Data races in ThreadSanitizer's output, each with both accesses, the later one first; one for a pair of places.

    Of an access: kind, file:line, stage if it is in one, and "block 2 thread 17", or "the host", which launched all.
    """
    races: dict[frozenset[tuple[str, str]], str] = {}
    for report in text.split("WARNING: ThreadSanitizer: ")[1:]:
        names = dict(_NAME.findall(report))
        accesses, where = [], []
        for part in report.split("\n\n"):
            if access := _ACCESS.search(part):
                kind, place, stage = access[1].lower(), _place(part), _STAGE.search(part)
                inside = f" in {STAGES[int(stage[1])]}" if stage else ""
                at = place or "a line that ThreadSanitizer no longer knows"
                accesses.append(f"{kind} at {at}{inside} by {names.get(access[2], 'the host')}")
                where.append((kind, place.partition(" ")[0]))
        if len(accesses) >= 2:
            races.setdefault(frozenset(where[:2]), f"{accesses[0]}, and {accesses[1]}")
    return list(races.values())


def fault(text: str) -> str:
    """The signal that ended the process and its place: `SEGV at variants/x.cu:12`; "" if the output has none."""
    signal = re.search(r"ERROR: ThreadSanitizer: (\w+)", text)
    place = next((f" at {place}" for place in _frames(text)), "")
    return signal[1] + place if signal else ""


def _place(text: str) -> str:
    """The innermost frame in the kernel's text, and the variant that called it; "" if there is none."""
    places = _frames(text)
    return places[0] + called(places) if places else ""


def _frames(text: str) -> list[str]:
    """`file:line` of the frames in the kernel's text, as they come."""
    places = (f"{file.removeprefix('./')}:{line}" for file, line in _FRAME.findall(text))
    return [place for place in places if in_text(place)]

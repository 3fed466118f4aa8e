"""Parser of ThreadSanitizer's output: the two accesses of each data race, their source lines and threads."""

import re
from dataclasses import dataclass

from common.model.stages import STAGES

_ACCESS = re.compile(
    r"^  (?:Previous )?((?:atomic )?(?:read|write)) of size \d+ at \S+ by (?:thread (T\d+)|main thread)", re.I
)
_FRAME = re.compile(r"^    #\d+ (.*) (\S+?):(\d+)(?::\d+)? \(")
_NAME = re.compile(r"^  Thread (T\d+) '([^']+)'", re.M)
_STAGE = re.compile(r"perform<\(Stage\)(\d+)>")
_PORT = "common/kernel/port.cuh"


@dataclass(frozen=True)
class Access:
    """One side of a race.

    kind     read, write, atomic read or atomic write
    place    file:line of the innermost frame outside port.cuh; "" if ThreadSanitizer no longer has the stack
    variant  file:line of the innermost frame in variants/; "" if that is `place` or there is none
    stage    "" if the access is outside all stages, as in a barrier
    thread   "block 2 thread 17"; "the host" for the thread that launched the kernel
    """

    kind: str
    place: str
    variant: str
    stage: str
    thread: str

    def __str__(self) -> str:
        via = f" called at {self.variant}" if self.variant else ""
        stage = f" in {self.stage}" if self.stage else ""
        return (
            f"{self.kind} at {self.place or 'a line that ThreadSanitizer no longer knows'}{via}{stage} by {self.thread}"
        )


@dataclass(frozen=True)
class DataRace:
    """Two unordered accesses to the same memory, at least one of them a write. In this run `late` came second."""

    late: Access
    early: Access

    def __str__(self) -> str:
        return f"{self.late}, and {self.early}"


def data_races(text: str) -> list[DataRace]:
    """The data races in ThreadSanitizer's output, in its order; one for each pair of places."""
    races: dict[frozenset[tuple[str, str]], DataRace] = {}
    for report in text.split("WARNING: ThreadSanitizer: ")[1:]:
        names = dict(_NAME.findall(report))
        sides = [_access(part, names) for part in report.split("\n\n") if _ACCESS.search(_after_title(part))]
        if len(sides) >= 2:
            pair = frozenset((side.kind, side.place) for side in sides[:2])
            races.setdefault(pair, DataRace(sides[0], sides[1]))
    return list(races.values())


def fault(text: str) -> str:
    """The signal that ended the process and its place: `SEGV at variants/x.cu:12`; "" if the output has none."""
    signal = re.search(r"ERROR: ThreadSanitizer: (\w+)", text)
    place = next((f" at {place}" for place in frames(text)), "")
    return signal[1] + place if signal else ""


def frames(text: str) -> list[str]:
    """`file:line` of the frames in the flattened text outside port.cuh, as they come."""
    found = filter(None, map(_FRAME.match, text.splitlines()))
    return [_name(match[2], match[3]) for match in found if in_text(match[2])]


def _after_title(part: str) -> str:
    """The part of a report without its title line."""
    return part[part.find("\n  ") + 1 :] if not part.startswith("  ") else part


def _access(part: str, names: dict[str, str]) -> Access:
    """One side of a race. names: thread names such as "block 2 thread 17", by ThreadSanitizer's numbers such as T2."""
    first, *lines = _after_title(part).splitlines()
    access = _ACCESS.match(first)
    assert access is not None  # data_races found the part by this pattern
    kind, thread = access.groups()
    frames = [match.groups() for match in map(_FRAME.match, lines) if match]
    places = [_name(file, line) for _, file, line in frames if in_text(file)]
    variant = next((place for place in places if place.startswith("variants/")), "")
    stage = next((match[1] for function, _, _ in frames if (match := _STAGE.search(function))), None)
    return Access(
        kind=kind.lower(),
        place=places[0] if places else "",
        variant=variant if variant not in places[:1] else "",
        stage=STAGES[int(stage)] if stage else "",
        thread=names.get(thread, "the host") if thread else "the host",
    )


def _name(file: str, line: str) -> str:
    return f"{file.removeprefix('./')}:{line}"


def in_text(file: str) -> bool:
    """True if a frame is in the flattened text outside port.cuh: such files are relative and not .cpp or .hpp."""
    return not file.startswith(("/", "..", "<")) and not file.endswith((".cpp", ".hpp")) and file != _PORT

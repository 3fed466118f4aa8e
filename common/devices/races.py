"""What ThreadSanitizer prints, read: which two accesses no barrier orders, where they stand, and who made them."""

import re
from dataclasses import dataclass

from common.model import STAGES

_ACCESS = re.compile(
    r"^  (?:Previous )?((?:atomic )?(?:read|write)) of size \d+ at \S+ by (?:thread (T\d+)|main thread)", re.I
)
_FRAME = re.compile(r"^    #\d+ (.*) (\S+?):(\d+)(?::\d+)? \(")
_NAME = re.compile(r"^  Thread (T\d+) '([^']+)'", re.M)
_STAGE = re.compile(r"perform<\(Stage\)(\d+)>")
_PORT = "common/device/port.cuh"


@dataclass(frozen=True)
class Access:
    """One side of a race.

    kind     read, write, atomic read or atomic write
    place    file:line of the innermost statement above port.cuh; "" when it lies too far back
    variant  file:line in the innermost frame of a file in variants/, "" when that is `place` or there is none
    stage    "" when it is not inside one, as in a barrier
    thread   "block 2 thread 17"
    """

    kind: str
    place: str
    variant: str
    stage: str
    thread: str

    def __str__(self) -> str:
        via = f" called at {self.variant}" if self.variant else ""
        stage = f" in {self.stage}" if self.stage else ""
        return f"{self.kind} at {self.place or 'a place too far back to name'}{via}{stage} by {self.thread}"


@dataclass(frozen=True)
class DataRace:
    """Two accesses to the same memory, unordered, one of them a write. `late` ran after `early`, this time."""

    late: Access
    early: Access

    def __str__(self) -> str:
        return f"{self.late}, and {self.early}"


def races(text: str) -> list[DataRace]:
    """The data races in ThreadSanitizer's output, in its order; one for each pair of places."""
    found: dict[frozenset[tuple[str, str]], DataRace] = {}
    for report in text.split("WARNING: ThreadSanitizer: ")[1:]:
        names = dict(_NAME.findall(report))
        sides = [_access(part, names) for part in report.split("\n\n") if _ACCESS.search(_after_title(part))]
        if len(sides) >= 2:
            pair = frozenset((side.kind, side.place) for side in sides[:2])
            found.setdefault(pair, DataRace(sides[0], sides[1]))
    return list(found.values())


def fault(text: str) -> str:
    """What ended the process and where, such as `SEGV at variants/x.cu:12`; empty if ThreadSanitizer did not say."""
    found = re.search(r"ERROR: ThreadSanitizer: (\w+)", text)
    frames = map(_FRAME.match, text.splitlines())
    place = next((f" at {_name(match[2], match[3])}" for match in frames if match and _in_text(match[2])), "")
    return found[1] + place if found else ""


def _after_title(part: str) -> str:
    """The part of a report without the line that says what it reports."""
    return part[part.find("\n  ") + 1 :] if not part.startswith("  ") else part


def _access(part: str, names: dict[str, str]) -> Access:
    lines = _after_title(part).splitlines()
    kind, thread = _ACCESS.match(lines[0]).groups()
    frames = [match.groups() for match in map(_FRAME.match, lines[1:]) if match]
    places = [_name(file, line) for _, file, line in frames if _in_text(file)]
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


def _in_text(file: str) -> bool:
    """Whether a frame stands in the flattened text, whose files are relative; the runtime's are not, or end in .cpp."""
    return not file.startswith(("/", "..", "<")) and not file.endswith((".cpp", ".hpp")) and file != _PORT

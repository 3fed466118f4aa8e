"""The header of a variant's source: its idea, its hypothesis, the overridden members, and its command.

// Idea        one sentence, which may continue
//             in lines like this one
// Hypothesis  why it should be faster, in bytes, loads or barriers
// Overrides   attention, after
// Run         python -m experiments variant=NAME
"""

import re
from pathlib import Path
from typing import Any

from common.errors import LabError

NOTHING = "nothing"  # as Overrides: the variant overrides no member
COMMAND = "python -m experiments "
_FIELDS = ("Idea", "Hypothesis", "Overrides", "Run")
_FIELD = re.compile(r"// ([A-Z]\w*)(?:\s+(.*))?")
_MORE = re.compile(r"//\s{2,}(.*)")
_NAME = re.compile(r"[a-z]\w*")


def read_header(source: Path) -> dict[str, Any]:
    """The fields of a Variant in the header of `source`; texts are on one line.

    Raises LabError if it is unreadable, incomplete or malformed.
    """
    name = "/".join(source.parts[-2:])
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{name} cannot be read: {error}", "restore the file") from error
    fields = _fields(name, lines)
    remedy = f"begin the file with {', '.join(f'`// {field}`' for field in _FIELDS)}, as variants/baseline.cu does"
    for field in fields.keys() - set(_FIELDS):
        raise LabError(f"{name} has an unknown field `// {field}` in its header", remedy)
    for field in _FIELDS:
        if not fields.get(field):
            raise LabError(f"{name} has no `// {field}` in its header", remedy)
    overrides = tuple(re.split(r",\s*", fields["Overrides"]))
    for member in overrides:
        if not _NAME.fullmatch(member):
            raise LabError(
                f"{name} says `// Overrides {fields['Overrides']}`",
                f"list names of members, separated by commas, or write {NOTHING}",
            )
    if not fields["Run"].startswith(COMMAND):
        raise LabError(f"{name} says `// Run {fields['Run']}`", f"write a command that begins with `{COMMAND.strip()}`")
    members = () if overrides == (NOTHING,) else overrides
    return {"idea": fields["Idea"], "hypothesis": fields["Hypothesis"], "overrides": members, "run": fields["Run"]}


def _fields(name: str, lines: list[str]) -> dict[str, str]:
    """Text by field, continuation lines joined; the header ends at the first line that is no comment."""
    fields: dict[str, str] = {}
    last = ""
    for number, line in enumerate(lines, 1):
        if not line.startswith("//"):
            break
        if found := _FIELD.fullmatch(line):
            last = found[1]
            if last in fields:
                raise LabError(f"{name}:{number} has a second `// {last}`", "keep one of the two")
            fields[last] = (found[2] or "").strip()
        elif (more := _MORE.fullmatch(line)) and last:
            fields[last] = f"{fields[last]} {more[1]}".strip()
        else:
            raise LabError(
                f"{name}:{number} is neither a field of the header nor the continuation of one",
                "write `// Field  text`, or indent a continuation by two blanks; end the header with a blank line",
            )
    return fields

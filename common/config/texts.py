"""Free texts on a command line: taken literally, or read as JSON where they begin as JSON does."""

import json
import re
from pathlib import Path
from typing import Any

from common.errors import LabError

TEXTS = ("prompt", "system", "stop_strings")  # keys with free text, for a model or an answer
PATHS = ("cache", "out", "results", "weights")


def admit_text(argument: str) -> str:
    """The override; the text of a key in TEXTS is quoted for Hydra, so that it is neither split nor interpolated.

    So is a path, such as `~/my model (1)`, without a comma, quote, bracket or reference. A text that begins with a
    double quote or `[` is JSON: a text, a list, or several for a multirun.
    Raises LabError where it is not, and for text that is no Unicode.
    """
    key, equals, value = argument.partition("=")
    name = key.lstrip("+")
    if name in PATHS and value not in ("", "null") and not re.search(r"""[,"'\[{$]""", value):
        return key + equals + quoted(value)
    if name not in TEXTS or value in ("", "null"):
        return argument
    values = [value]
    if value.startswith(('"', "[")):
        try:
            values = json.loads(f"[{value}]", strict=False)
        except json.JSONDecodeError as error:
            remedy = r"""write "TEXT", with \n for a new line and \\ for a backslash, or ["a","b"]"""
            raise LabError(f"{name}={value} is not JSON: {error.msg}", remedy) from None
    admitted = key + equals + ",".join(map(override_text, values))
    try:
        admitted.encode()
    except UnicodeEncodeError:
        raise LabError(f"{name} is not valid Unicode", "give UTF-8, and both halves of a \\u pair") from None
    return admitted


def quoted(text: str) -> str:
    """`text` quoted for Hydra's command line: taken literally, `${...}` included."""
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return "'" + re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"


def override_text(value: Any) -> str:
    """`value` in the syntax of Hydra's command line; a text is `quoted`. Raises LabError where it has no such form."""
    if value is None or isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, str | Path):
        return quoted(str(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(map(override_text, value))}]"
    raise LabError(f"{value!r} is no value of a key", "give a text, number, True, False, None, or a list of them")

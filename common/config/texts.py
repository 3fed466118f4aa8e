"""Free texts on a command line: read like JSON strings, and protected from Hydra's and OmegaConf's syntax."""

import json
import re

from common.errors import LabError

TEXTS = ("prompt", "system", "stop_strings")  # keys with free text, for a model or an answer
_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)


def admit_text(argument: str) -> str:
    r"""An override as it is; for a key of TEXTS with its escapes decoded, and without interpolation.

    Raises LabError for an escape that JSON has not, a backslash or `${` outside quotes, and text that is no Unicode.
    """
    key, equals, value = argument.partition("=")
    name = key.lstrip("+")
    if name not in TEXTS:
        return argument
    outside = _QUOTED.sub("", value)
    for special in ("\\", "${"):
        if special in outside:
            raise LabError(f"{name}: {special} stands outside quotes", f"""quote the text: {name}='"TEXT"'""")
    admitted = key + equals + _QUOTED.sub(lambda found: quoted(_decoded(name, found[2])), value)
    try:
        admitted.encode()
    except UnicodeEncodeError:
        raise LabError(f"{name} is not valid Unicode", "give UTF-8, and both halves of a \\u pair") from None
    return admitted


def quoted(text: str) -> str:
    """`text` quoted for Hydra's command line: taken literally, `${...}` included."""
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return "'" + re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"


def _decoded(name: str, text: str) -> str:
    """The text between two quotes of either kind. Raises LabError for an escape that is not JSON's."""
    other = {"\\'": "'", '"': '\\"'}
    inner = re.sub(r'\\.|"', lambda found: other.get(found[0], found[0]), text, flags=re.DOTALL)
    try:
        return json.loads(f'"{inner}"', strict=False)
    except json.JSONDecodeError as error:
        wrong = inner[inner.rindex("\\", 0, error.pos) :][:2]
        remedy = r"write \n for a new line, \\ for a backslash, and else as JSON does"
        raise LabError(f"{name}: {wrong} is not an escape of JSON", remedy) from None

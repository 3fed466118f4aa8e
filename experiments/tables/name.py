"""Name of a stack in several lines, for a column that leaves the room to figures."""

import re
from textwrap import wrap

BREAK = "\v"  # white space that no name has


def in_lines(name: str, width: int) -> str:
    """`name` in lines of at most `width` columns, broken after spaces and `+`, and inside a word that is longer."""
    parts = re.sub(r"\+(?=\S)", f"+{BREAK}", name)
    lines = wrap(parts, width, break_on_hyphens=False, expand_tabs=False, replace_whitespace=False)
    return "\n".join(line.replace(BREAK, "") for line in lines)

"""Excuses in the CUDA text: comments `// equivalent: why` and `// not executed: why` beside the code they excuse."""

import re
from functools import cache

from common import ROOT


@cache
def excuses(file: str, word: str) -> dict[int, list[str]]:
    """By the number of a line the reasons of its comments `// word: reason`, at its end or in the lines above it."""
    found, waiting = dict[int, list[str]](), list[str]()
    for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
        code, _, comment = line.partition("//")
        if excuse := re.match(rf" {word}: (.*)", comment):
            waiting.append(excuse[1])
        if code.strip():
            if waiting:
                found[number] = waiting
            waiting = []
    return found

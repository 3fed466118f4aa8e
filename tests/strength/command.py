"""Commands of strength tests without a yaml of keys: their module's text is their help."""

import sys
from collections.abc import Callable, Sequence

from common.config.cli import guarded


def command(run: Callable[[Sequence[str]], int], text: str, argv: Sequence[str] | None = None) -> int:
    """The exit code of `run`, given the words after the program's name; a mistake is one line. text: for --help."""
    words = sys.argv[1:] if argv is None else argv
    if {"--help", "-h"} & {*words}:
        print(text.strip())
        return 0
    return guarded(lambda: run(words))

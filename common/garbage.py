"""Searches for garbage in a process that is one command of the lab."""

import atexit
import gc
import sys

BETWEEN = 50_000  # objects that are made between two searches; Python's own number is 700


def search_seldom() -> None:
    """Search seldom, and not at the end; only in `python -m MODULE`, not in a program that imports the lab.

    What the 1,100 modules of torch make stays. Python would search all of it again and again while it imports them, and
    twice more as it ends: a third of the time that `import torch` takes.
    """
    if sys.argv[:1] == ["-m"]:  # argv while Python looks for the module
        gc.set_threshold(BETWEEN, *gc.get_threshold()[1:])
        atexit.register(gc.freeze)

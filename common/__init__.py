"""The parts every command is built from, a package for each step: compile, validate, measure, record.

Imports go one way, and a contract in pyproject.toml keeps them so: config > record > validate > devices > compile >
stacks > model > cache > errors.
"""

import signal
import sys
from pathlib import Path

# Ctrl-C ends a command without a traceback while it imports its modules; later `common.config.cli.guarded` handles it.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parents[1]  # root of the checkout: sources, yaml and committed records lie below it

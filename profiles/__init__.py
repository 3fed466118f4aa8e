"""Profiles of one kernel: nsys, ncu and the built-in timeline."""

import common  # noqa: F401  # before the modules of the command, for Ctrl-C

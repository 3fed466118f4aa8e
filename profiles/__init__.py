"""Profiles of one kernel: nsys, ncu and the built-in timeline."""

from common.errors.interrupt import while_importing

while_importing()

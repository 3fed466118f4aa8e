"""Profiles of one kernel: nsys, ncu and the built-in timeline."""

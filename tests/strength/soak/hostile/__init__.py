"""Hostile inputs: generated command lines, calls in Python and environments."""

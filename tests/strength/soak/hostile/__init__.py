"""Hostile inputs: generated command lines, calls in Python, checkpoints, store lines, cache states and environments."""

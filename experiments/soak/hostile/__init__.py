"""Hostile inputs: generated command lines, checkpoints, store lines, cache states and environments."""

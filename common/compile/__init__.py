"""Compilation of a stack of variants: the flattened source, NVRTC, registers and instructions of the result."""

"""Validation of a kernel: float64 reference, tolerances, scenarios, and the comparison of every stage."""

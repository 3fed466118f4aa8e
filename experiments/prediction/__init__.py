"""Prediction of times on GPUs that are not at hand, from exact counts."""

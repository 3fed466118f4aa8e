"""Measurement on a GPU: interleaved rounds, confidence intervals, verdicts, the read ceiling."""

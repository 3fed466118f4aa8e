"""Recorder of A/A timings: one matrix-vector product against itself, bound by memory bandwidth like a decode step.

python tests/samples/record_pairs.py > tests/samples/pairs.json
"""

import json
import os
import platform
import statistics
import time

import torch

PAIRS, ROUNDS, REPEATS = 50, 40, 3  # as in experiments/timing/measure.py: a round's sample is the median of its runs
SIDE = 4096  # 64 MB of fp32: more than the caches hold


def main() -> None:
    """Print the samples, in seconds per product."""
    torch.set_num_threads(1)
    matrix, vector = torch.randn(SIDE, SIDE), torch.randn(SIDE)

    def run() -> float:
        began = time.perf_counter()
        torch.mv(matrix, vector)
        return time.perf_counter() - began

    pairs = []
    for _ in range(PAIRS):
        samples: list[list[float]] = [[], []]
        for done in range(ROUNDS):
            for which in (0, 1) if done % 2 else (1, 0):  # the order is reversed every round
                seconds = statistics.median(run() for _ in range(REPEATS))
                samples[which].append(float(f"{seconds:.6g}"))
        pairs.append(samples)
    about = f"{platform.machine()}, {os.cpu_count()} cores; seconds of one {SIDE} x {SIDE} product, interleaved"
    print(json.dumps({"about": about, "pairs": pairs}))


if __name__ == "__main__":
    main()

"""What the committed records say about one GPU, fastest first: behind `variant=best`."""

from pathlib import Path
from typing import Any

from common.records import Store

# Latencies of one model at one position can be compared; these are what every published figure starts with.
MODEL, POSITION = "qwen3_0_6b", 1
FIRM = (None, "FASTER", "SAME", "SLOWER")


def measured_on(gpu: str, results: Path, threads: int) -> list[dict[str, Any]]:
    """The rows of `results`/*.jsonl that passed validation on `gpu` with a firm latency, fastest first.

    gpu: its name as CUDA gives it. threads: of a block; a ratio of warps means something for one block size only.
    Raises LabError for a file that cannot be read.
    """
    timed = []
    for row in (row for path in sorted(results.glob("*.jsonl")) for row in Store(path).rows()):
        wanted = row.get("kind") == "run" and row.get("status") == "PASSED" and row.get("threads") == threads
        if wanted and row["device"].get("gpu") == gpu and row["model"]["name"] == MODEL:
            timed += [
                (found["seconds"]["median"], row)
                for found in row.get("latencies") or ()
                if found["position"] == POSITION and found["verdict"] in FIRM
            ]
    return [row for _, row in sorted(timed, key=lambda pair: pair[0])]

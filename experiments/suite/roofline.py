"""How fast memory is by three ways to use it, what each stage must read, and where every variant stands below that."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common.catalog import read_catalog
from common.errors import Crashed
from common.model import STAGES
from common.nvrtc import options
from experiments.inquiry import Inquiry, microseconds
from experiments.outcome import COUNTED, MEASURED, Outcome
from experiments.prediction.model import stage_bytes

KERNELS = Path(__file__).with_suffix(".cu")
TILE = 8192  # bytes of one bulk copy, as in the kernels
BULK_ARCH = 90  # the first that copies in bulk
THREADS, BLOCKS_PER_SM, RUNS = 256, 4, 20
QUESTION = "how fast this GPU's memory is, what each stage must read, and where every variant stands"
NOTES = (
    "Decoding only reads, so the first row is its ceiling; a copy also writes, and its GB/s count both directions. "
    "Stages have about one multiplication and one addition for each bf16 weight, 1 FLOP a byte: far left of any "
    "GPU's ridge.",
)


def ask(inquiry: Inquiry) -> Outcome:
    """Rows of probes, of stages, and of variants; bytes everywhere, times where there is a GPU."""
    position = inquiry.options.whole("position", low=0)
    stages = _stages(inquiry, position)
    if inquiry.on_gpu:
        variants = _variants(inquiry, position)  # first: the probes make this process another one on the GPU
        rows = [*_probes(), *stages, *variants]
        best = max(row["GB/s"] for row in rows if row["kind"] == "probe" and row["what"].startswith("read"))
        for row in rows:
            row["% of best read"] = 100 * row["GB/s"] / best if "GB/s" in row else None
        return Outcome("roofline", QUESTION, pd.DataFrame(rows), MEASURED, NOTES, keys=2)
    gpu = inquiry.gpu(inquiry.options.text("gpu"))
    for row in stages:
        row[f"us at peak, {gpu.name}"] = row["MB"] * 1e6 / (1e9 * gpu.bandwidth_gbps) * 1e6
        row[f"us at read rate, {gpu.name}"] = row["MB"] * 1e6 / gpu.read_rate * 1e6
    return Outcome(
        "roofline", QUESTION, pd.DataFrame(stages), COUNTED, NOTES, "bandwidths, and the place of each variant", 2
    )


def _stages(inquiry: Inquiry, position: int) -> list[dict[str, Any]]:
    """Bytes of each stage of the baseline, over all layers."""
    source = inquiry.source((), {})
    counts = inquiry.counts(source, inquiry.gpu(inquiry.options.text("gpu")))
    sizes = {stage: stage_bytes(source, counts, stage, position) for stage in STAGES}
    total = sum(sizes.values())
    rows = [
        {"kind": "stage", "what": stage, "MB": size / 1e6, "share %": 100 * size / total}
        for stage, size in sizes.items()
    ]
    return [*rows, {"kind": "step", "what": "all stages", "MB": total / 1e6, "share %": 100.0}]


def _variants(inquiry: Inquiry, position: int) -> list[dict[str, Any]]:
    catalog, size = read_catalog(), inquiry.model.bytes_per_token(position)
    names = inquiry.options.texts("variants") or (*catalog.variants, *catalog.stacks)
    rows = []
    for record in inquiry.measure([inquiry.stack(name) for name in names]):
        time = microseconds(record, position)
        if math.isnan(time):
            continue
        rows.append(
            {"kind": "variant", "what": record["variant"], "MB": size / 1e6, "us": time, "GB/s": size / time / 1e3}
        )
    return rows


def _probes() -> list[dict[str, Any]]:
    """Bandwidth of each way to use memory: the best of some runs over 2 GiB, or half of the free memory."""
    import cupy

    from experiments.timing.bandwidth import read_ceiling

    device = cupy.cuda.Device()
    plain = read_ceiling()
    found = [_probe("read, 128-bit loads", plain.size, plain.size / plain.best)]
    module = cupy.RawModule(code=KERNELS.read_text(), options=options())
    data = cupy.arange(1, plain.size // TILE * (TILE // 4) + 1, dtype=cupy.uint32)
    blocks = device.attributes["MultiProcessorCount"] * BLOCKS_PER_SM
    if int(device.compute_capability) >= BULK_ARCH:
        result, bulk = cupy.zeros(1, cupy.uint32), module.get_function("read_bulk")
        tiles = np.uint64(data.nbytes // TILE)

        def read() -> None:
            result.fill(0)
            bulk((blocks,), (THREADS,), (data, tiles, result))

        seconds = _best(read)
        if int(result[0]) != data.size:  # 1 ^ 2 ^ ... ^ n is n where 4 divides n
            raise Crashed("the bulk copies did not bring all words", "report this GPU; plain loads are not affected")
        found.append(_probe("read, bulk copies", data.nbytes, seconds))
    half, copy = data.size // 2, module.get_function("copy_all")
    words = np.uint64(half // 4)
    seconds = _best(lambda: copy((blocks * 2,), (THREADS,), (data, data[half:], words)))
    found.append(_probe("copy, both directions", 2 * 4 * half, seconds))
    return found


def _probe(what: str, size: int, seconds: float) -> dict[str, Any]:
    return {"kind": "probe", "what": what, "MB": size / 1e6, "us": 1e6 * seconds, "GB/s": size / seconds / 1e9}


def _best(launch: Callable[[], None]) -> float:
    """Seconds of the fastest of some launches, by CUDA events; the first only warms up."""
    import cupy

    seconds = []
    for _ in range(RUNS + 1):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        launch()
        stop.record()
        stop.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return min(seconds[1:])

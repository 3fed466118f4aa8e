"""Virtual seconds of work, from counts: the same in every run, and no statement about any GPU."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from common.devices.ptx.counted import counted, stage_of
from common.devices.ptx.program import PtxKernel

CALL, LAUNCH_CALL = 1e-6, 7e-6  # on the host, for any call and for a launch from Python
LAUNCH, NODE = 2e-6, 1e-6  # on the device, for a launch and for the node of a graph
BANDWIDTH = 3e12  # bytes a second
SHARE = {16: 0.4, 32: 0.6, 64: 0.8, 128: 1.0}  # share of that bandwidth, by the width of the load in bits
GRID_BARRIER, BLOCK_BARRIER, ATOMIC = 1e-6, 2e-8, 1e-9
PAID = ("ld", "st", "atom", "red", "prefetch", "cp", "bar", "barrier")  # opcodes that take time


def copied(size: int) -> float:
    return LAUNCH + size / BANDWIDTH


def probed(size: int, share: float = 1.0) -> float:
    """Seconds of a kernel that moves `size` bytes at a share of the bandwidth."""
    return LAUNCH + size / (share * BANDWIDTH)


def decoded(total: Callable[[str], int], blocks: int) -> float:
    """Seconds of one launch of a kernel. total: a count of all its blocks by name, as in common.devices.counters."""
    seconds = LAUNCH + GRID_BARRIER * total("grid_barriers") + ATOMIC * total("atomics")
    seconds += BLOCK_BARRIER * total("block_barriers") / blocks + total("copied_async") / BANDWIDTH
    for bits, share in SHARE.items():
        seconds += sum(total(f"{data}_{bits}bit") for data in ("weights", "kv")) / (BANDWIDTH * share)
    return seconds


def find_prices(
    prices: np.ndarray, executed: np.ndarray, kernel: PtxKernel, buffers: Sequence[str], blocks: int, threads: int
) -> None:
    """Fill in the prices that this launch is the first to pay: seconds for one of `executed`, NaN before.

    prices, executed: [rows, columns] as in Ended, of which `decoded` is a linear function. The rest: as of `counted`.
    """
    new = np.argwhere((executed > 0) & np.isnan(prices)).tolist()
    rows, unit = kernel.rows() if new else [], 32 * blocks * threads  # whole warps, blocks and grids
    waits = {stage_of(row) for row in rows if row.opcode.startswith("ld.acquire")}
    for at, column in new:
        prices[at, column] = 0
        if rows[at].opcode.partition(".")[0] in PAID:
            one = np.zeros((1, executed.shape[1]), np.uint64)
            one[0, column] = unit
            counts = sum(counted([rows[at]], one, buffers, blocks, threads).values(), Counter())
            counts["grid_barriers"] = counts["arrivals"] * (stage_of(rows[at]) in waits)
            prices[at, column] = (decoded(counts.__getitem__, blocks) - LAUNCH) / unit

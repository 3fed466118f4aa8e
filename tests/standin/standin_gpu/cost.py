"""Virtual seconds of work, from counts: the same in every run, and no statement about any GPU."""

from common.devices.counters import Counts

CALL, LAUNCH_CALL = 1e-6, 7e-6  # of the host, for any call and for a launch from Python
LAUNCH, NODE = 2e-6, 1e-6  # of the device, for a launch and for the node of a graph
BANDWIDTH = 3e12  # bytes a second
SHARE = {16: 0.4, 32: 0.6, 64: 0.8, 128: 1.0}  # of that bandwidth, by the width of the load in bits
GRID_BARRIER, BLOCK_BARRIER, ATOMIC = 1e-6, 2e-8, 1e-9


def copied(size: int) -> float:
    return LAUNCH + size / BANDWIDTH


def probed(size: int, share: float = 1.0) -> float:
    """Seconds of a kernel that moves `size` bytes at a share of the bandwidth."""
    return LAUNCH + size / (share * BANDWIDTH)


def decoded(counts: Counts, blocks: int) -> float:
    """Seconds of one launch of a decode kernel that has counted itself on the host device."""
    seconds = LAUNCH + GRID_BARRIER * counts.total("grid_barriers") + ATOMIC * counts.total("atomics")
    seconds += BLOCK_BARRIER * counts.total("block_barriers") / blocks
    for data in ("weights", "kv"):
        seconds += sum(size / (BANDWIDTH * SHARE[bits]) for bits, size in counts.bytes_by_width(data).items())
    return seconds + counts.total("copied_async") / BANDWIDTH

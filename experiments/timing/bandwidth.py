"""Read-only bandwidth of this GPU, measured in the same run: the ceiling of decoding.

Decoding reads almost only. A copy also writes, so its bandwidth would be the wrong ceiling.
"""

from dataclasses import dataclass

import numpy as np

from common.compile.nvrtc import options
from common.errors import Crashed

THREADS, BLOCKS_PER_SM = 256, 8

# Each thread has several 128-bit loads in flight; the loads of a warp are coalesced.
TEXT = r"""
#line 1 "experiments/timing/bandwidth.cu"
extern "C" __global__ void read_all(const uint4* data, size_t count, unsigned* result) {
    constexpr int unroll = 8;
    size_t stride = size_t(gridDim.x) * blockDim.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned bits = 0;
    for (; i + (unroll - 1) * stride < count; i += unroll * stride) {
        uint4 loaded[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) loaded[u] = data[i + u * stride];
#pragma unroll
        for (int u = 0; u < unroll; u++) bits ^= loaded[u].x ^ loaded[u].y ^ loaded[u].z ^ loaded[u].w;
    }
    for (; i < count; i += stride) bits ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
    for (int lane = 16; lane > 0; lane /= 2) bits ^= __shfl_xor_sync(~0u, bits, lane);
    if (threadIdx.x % 32 == 0) atomicXor(result, bits);
}
"""


@dataclass(frozen=True)
class Ceiling:
    """Read-only bandwidth in bytes per second. `best`, of the fastest run, is the ceiling; `median` is of all runs.

    size              bytes that each run read
    last_level_cache  bytes of the GPU's L2
    seconds           of every run
    """

    best: float
    median: float
    size: int
    last_level_cache: int
    seconds: tuple[float, ...]


def read_ceiling(size: int = 2 << 30, runs: int = 20) -> Ceiling:
    """Read `size` bytes (at most half of the free memory) `runs` times on the current GPU.

    The xor over all words is checked after every run, so a load that is left out is noticed. Raises Crashed.
    """
    import cupy

    device = cupy.cuda.Device()
    words = min(size, device.mem_info[0] // 2) // 4096 * 1024
    data = cupy.arange(1, words + 1, dtype=cupy.uint32)
    expected = words  # 1 ^ 2 ^ ... ^ n is n for every n that 4 divides
    result = cupy.zeros(1, dtype=cupy.uint32)
    kernel = cupy.RawModule(code=TEXT, options=options()).get_function("read_all")
    blocks = device.attributes["MultiProcessorCount"] * BLOCKS_PER_SM
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    seconds = []
    for _ in range(runs + 1):
        result.fill(0)
        start.record()
        kernel((blocks,), (THREADS,), (data, np.uint64(words // 4), result))
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, end) / 1000)
        if int(result[0]) != expected:
            raise Crashed(
                f"the bandwidth probe computed the xor {int(result[0]):#x}, not {expected:#x}",
                "run it again; if the error repeats, test the GPU's memory",
            )
    del seconds[0]  # the first launch also loads the module
    return Ceiling(
        best=data.nbytes / min(seconds),
        median=data.nbytes / float(np.median(seconds)),
        size=data.nbytes,
        last_level_cache=device.attributes["L2CacheSize"],
        seconds=tuple(seconds),
    )

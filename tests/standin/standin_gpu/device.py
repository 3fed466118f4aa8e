"""Properties of the stand-in's GPU, and what the driver allows on one of its multiprocessors."""

import os

NAME = b"Stand-in GPU (no hardware)"
ARCH = "sm_90"
DRIVER = 13020  # the CUDA that it knows
BUS_ID = "0000:1F:00.0"
MEMORY = 64 << 20
MULTIPROCESSORS = 8
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32  # per multiprocessor
SHARED, RESERVED = 228 << 10, 1 << 10  # per multiprocessor; the driver's share of each block
STATIC_SHARED = 48 << 10  # per block, more only after CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES was raised
OPTIN_SHARED = SHARED - RESERVED
BLOCK_THREADS = 1024

ATTRIBUTES = {
    "MaxThreadsPerBlock": BLOCK_THREADS,
    "MaxSharedMemoryPerBlock": STATIC_SHARED,
    "WarpSize": 32,
    "ClockRate": 1_755_000,
    "MultiProcessorCount": MULTIPROCESSORS,
    "L2CacheSize": 1 << 20,
    "MaxThreadsPerMultiProcessor": THREADS,
    "ComputeCapabilityMajor": 9,
    "ComputeCapabilityMinor": 0,
    "MaxSharedMemoryPerMultiprocessor": SHARED,
    "MaxRegistersPerMultiprocessor": REGISTERS,
    "CooperativeLaunch": 1,
    "MaxSharedMemoryPerBlockOptin": OPTIN_SHARED,
    "MemoryClockRate": 2_619_000,
    "GlobalMemoryBusWidth": 5120,
    "MaxRegistersPerBlock": REGISTERS,
}


def context() -> str:
    """Name of what a process with a context holds open: of this GPU, which the processes of one test share."""
    return f"standin-gpu-{os.environ.get('STANDIN_GPU', '')}-context"


def resident_blocks(registers: int, threads: int, shared: int) -> int:
    """Blocks that fit on one multiprocessor; registers are allotted in units of 256 to each warp."""
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * warps)
    return min(BLOCKS, THREADS // (32 * warps), by_registers, SHARED // (shared + RESERVED))

"""Devices that run kernels: CUDA through CuPy, and the PTX device on a CPU; with counters, NVML and NVTX."""

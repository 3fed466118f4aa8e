"""Devices that run kernels: CUDA through CuPy, and the host device on a CPU; with counters, NVML and NVTX."""

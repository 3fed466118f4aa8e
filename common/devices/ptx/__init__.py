"""PTX device: executes NVRTC's PTX on a CPU, each warp in lockstep."""

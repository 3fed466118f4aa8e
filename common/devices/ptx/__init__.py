"""PTX device: executes on a CPU what NVRTC makes of the text, a warp in lockstep."""

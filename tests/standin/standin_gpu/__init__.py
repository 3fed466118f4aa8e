"""A GPU without hardware: what the stand-in for CuPy and pynvml executes its calls on."""

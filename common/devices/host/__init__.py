"""The host device: kernels compiled as C++ and executed on the CPU, each thread of a block as a fiber."""

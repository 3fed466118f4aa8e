"""Tests of the lab itself, by commands: faults in kernels, kills and bad inputs, times of the lab. See `make soak`."""

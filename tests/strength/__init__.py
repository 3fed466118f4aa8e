"""Tests of the lab itself, by commands: faults in kernels, kills and bad inputs. See `make soak`."""

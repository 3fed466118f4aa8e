"""Imported by every Python that has this folder on PYTHONPATH: the driver's libraries seem to be installed."""

from standin_gpu import clock, libraries

libraries.install()
clock.install()

"""Clocks of a block's chain of dependent instructions, read from a cubin without a GPU."""

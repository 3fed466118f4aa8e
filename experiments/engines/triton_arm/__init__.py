"""Decoder in Triton kernels, a rival whose stages the lab's own judge validates; interpreted where no GPU is."""

"""Decoder in Triton kernels, a rival whose stages the lab's judge validates; without a GPU their PTX is executed."""

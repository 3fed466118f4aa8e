"""Contents of unwritten memory: NaN that arithmetic never yields, another one in each neighbor.

An operation on NaN gives a quiet NaN. These are signaling, so a stored result differs from them in its bits, and so
does a copy of a neighbor.
"""

from math import isnan, nan

import numpy as np
import torch

from common.model.layout import NOT_SENT, Layout

NOT_WRITTEN = nan
NUMBER = 300.0  # instead of NaN, which a maximum skips: a kernel that reads unwritten memory then gives other bits
_BF16 = [sign | payload for payload in range(0x7F81, 0x7FC0) for sign in (0, 0x8000)]


def pattern(dtype: torch.dtype, value: float) -> np.ndarray:
    """The words that repeat in unwritten bfloat16 or float32: the NaNs if `value` is NaN, else `value` alone."""
    if not isnan(value):
        return _words(torch.full((1,), value, dtype=dtype))
    if dtype == torch.bfloat16:
        return np.array(_BF16, np.uint16).view(np.int16)
    return (np.array(_BF16, np.uint32) << 16).view(np.int32)


def repeat(words: np.ndarray, these: np.ndarray) -> None:
    """Write `these` over `words` again and again. Both are flat."""
    times = len(words) // len(these)
    whole = times * len(these)
    words[:whole].reshape(times, len(these))[:] = these
    words[whole:] = these[: len(words) - whole]


def fill(tensor: torch.Tensor, value: float = NOT_WRITTEN) -> None:
    """Overwrite a contiguous float32 or bfloat16 tensor with `value`; for NaN with the pattern of NaNs."""
    repeat(_words(tensor), pattern(tensor.dtype, value))


def fill_scratch(scratch: torch.Tensor, layout: Layout, value: float = NOT_WRITTEN) -> None:
    """Overwrite scratch with unwritten words, and the variants' regions with the sentinel."""
    fill(scratch, value)
    for slot in layout.regions.values():
        scratch.view(layout.tokens, -1)[:, slot.offset : slot.offset + slot.size].view(torch.int32).fill_(NOT_SENT)


def _words(tensor: torch.Tensor) -> np.ndarray:
    """The same memory as flat integers."""
    return tensor.view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32).view(-1).numpy()

"""What memory holds that no kernel has written: NaN that arithmetic never yields, another one in each neighbour.

The result of an operation on NaN is a quiet NaN. These are signaling, so a stored result differs from them in its bits,
and so does a copy from next to it.
"""

from math import isnan, nan

import torch

from common.model.layout import NOT_SENT, REGIONS, Layout

NOT_WRITTEN = nan
NUMBER = 300.0  # instead of NaN, which a maximum skips: a kernel that reads such memory then leaves other bits
_BF16 = [sign | payload for payload in range(0x7F81, 0x7FC0) for sign in (0, 0x8000)]


def fill(tensor: torch.Tensor, value: float = NOT_WRITTEN) -> None:
    """Overwrite a contiguous float32 or bfloat16 tensor: with the pattern of NaNs if `value` is NaN, else with it."""
    if not isnan(value):
        tensor.fill_(value)
        return
    word, shift = (torch.int16, 0) if tensor.dtype == torch.bfloat16 else (torch.int32, 16)
    bits = torch.tensor(_BF16, dtype=torch.int64) << shift
    pattern = torch.where(bits >= 1 << (15 + shift), bits - (1 << (16 + shift)), bits).to(word)
    flat = tensor.view(word).view(-1)
    whole = len(flat) // len(pattern) * len(pattern)
    flat[:whole].view(-1, len(pattern)).copy_(pattern.expand(whole // len(pattern), -1))
    flat[whole:] = pattern[: len(flat) - whole]


def fill_scratch(scratch: torch.Tensor, layout: Layout, value: float = NOT_WRITTEN) -> None:
    """Overwrite all of scratch, and what travels by value with the one word that says that nothing has arrived."""
    fill(scratch, value)
    for name in ("mail", *REGIONS):
        slot = layout.global_scratch[name]
        scratch[slot.offset : slot.offset + slot.size].view(torch.int32).fill_(NOT_SENT)

"""The NaNs of memory that no kernel has written: told from every result, and from their neighbours."""

import pytest
import torch

from common.devices.unwritten import NUMBER, fill

WORDS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}


@pytest.mark.parametrize("size", [5, 126, 1000])
@pytest.mark.parametrize("dtype", WORDS)
def test_no_operation_and_no_copy_from_nearby_leaves_the_same_bits(dtype, size):
    memory = torch.empty(size, dtype=dtype)
    fill(memory)
    assert memory.isnan().all()
    bits = memory.view(WORDS[dtype])
    for result in (memory + 0, memory * 1, -memory, torch.full_like(memory, torch.nan)):
        assert (result.view(WORDS[dtype]) != bits).all()
    for distance in (1, 2, 4, 8, 32, 64, 128, 256):  # neighbours, and the rows of heads
        assert (bits[distance:] != bits[:-distance]).all() or distance >= size
    fill(memory, NUMBER)
    assert (memory == NUMBER).all()

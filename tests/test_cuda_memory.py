"""A cache in a GPU's memory on the stand-in, against one of NumPy, and the kernels of CuPy that nothing needs."""

from random import Random

import numpy as np
import pytest
import torch

from common.devices.kv_cache import CudaKvCache, KvCache
from common.devices.unwritten import NOT_WRITTEN, NUMBER

pytestmark = pytest.mark.cpu
HEADS, ROW = (2, 2, 3), 24


@pytest.fixture(params=[1, 5, 40])
def both(cupy, request) -> tuple[KvCache, KvCache]:
    """Two caches of as many positions with other words: the CPU's and the GPU's."""
    shape = (*HEADS, request.param, ROW)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        there = CudaKvCache(cupy.empty(shape, cupy.int16), stream)
    return KvCache(np.zeros(shape, np.int16)), there


def words(cache: KvCache) -> np.ndarray:
    return cache.entries(0, cache.words.shape[-2]).view(torch.int16).numpy()


def drawn(random: Random, positions: int) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(random.getrandbits(30))
    return torch.randn(*HEADS, positions, ROW, generator=numbers).bfloat16()


def test_every_operation_leaves_what_numpy_leaves(both, seed):
    random, positions = Random(seed), both[0].words.shape[-2]
    for _ in range(6):
        at = random.randrange(positions + 1)
        unwritten, history = random.choice((NOT_WRITTEN, NUMBER)), drawn(random, positions)
        for cache in both:
            cache.reset(random.choice((history, cache.hold(history))), at, unwritten)
        assert (words(both[0]) == words(both[1])).all()
        first = random.randrange(positions)
        end = random.randrange(first, positions) + 1
        left = [cache.as_reset(first, end) for cache in both]
        copies, stored = [cache.copy() for cache in both], drawn(random, end - first)
        for cache in both:
            cache.store(first, stored)
        assert (words(both[0]) == words(both[1])).all()
        for cache, before in zip(both, copies, strict=True):
            got = cache.entries(first, end)
            assert torch.equal(got.view(torch.int16), stored.view(torch.int16))
            assert cache.difference(before, first) is None
            assert cache.difference(before, end)[0] == (0, 0, 0, first, 0)
        if first >= at:
            for cache, part, before in zip(both, left, copies, strict=True):
                cache.put(first, part)
                assert cache.difference(before) is None


def test_each_changed_element_is_found_and_no_other(both, seed):
    random = Random(seed)
    mine = both[1]
    positions = mine.words.shape[-2]
    mine.reset(drawn(random, positions), positions, NOT_WRITTEN)
    before = mine.copy()
    for _ in range(8):
        at = tuple(map(random.randrange, mine.words.shape))
        changed = words(before).copy()
        changed.view(np.uint16)[at] ^= 1 << random.randrange(16)
        later = [tuple(place) for place in np.argwhere(changed == changed) if tuple(place) > at]
        for place in random.sample(later, min(3, len(later))):
            changed[place] ^= 1
        mine.store(0, torch.from_numpy(changed).view(torch.bfloat16))
        element, value, want = mine.difference(before)
        assert element == at
        bits = torch.tensor([changed[at], words(before)[at]]).view(torch.bfloat16).tolist()
        assert np.array_equal([value, want], bits, equal_nan=True)
        assert mine.difference(before, at[3]) is None or at[:3] < mine.difference(before, at[3])[0][:3]


@pytest.mark.parametrize("word", [0x7F80, 0x0000, -0x8000, -0x0080, 0x4040])  # infinities, zeros, a number
def test_an_element_that_is_no_nan_is_found(both, seed, word):
    random = Random(seed)
    for cache in both:
        cache.reset(None, 0, NOT_WRITTEN)
        assert cache.written(0) is None
    changed = words(both[0]).copy()
    at = tuple(map(random.randrange, changed.shape))
    changed[at] = word
    for cache in both:
        cache.store(0, torch.from_numpy(changed).view(torch.bfloat16))
        element, value, _ = cache.written(0)
        assert element == at
        assert value == float(torch.tensor([word], dtype=torch.int16).view(torch.bfloat16))
        assert cache.written(at[3] + 1) is None


def test_a_copy_beside_its_memory_is_refused(both, misuse):
    with pytest.raises(misuse, match="leaves its buffer"):
        both[1].store(1, drawn(Random(1), both[1].words.shape[-2]))

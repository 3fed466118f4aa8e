"""Read-only bandwidth probe on a GPU: its sum is that of numpy, and its bandwidth is plausible."""

import numpy as np
import pytest

from common.compile.nvrtc import options
from experiments.timing.bandwidth import TEXT, THREADS, read_ceiling

pytestmark = pytest.mark.cuda


def test_every_word_is_read(seed):
    import cupy

    rng = np.random.default_rng(seed)
    kernel = cupy.RawModule(code=TEXT, options=options()).get_function("read_all")
    for _ in range(5):
        words = 4 * int(rng.integers(1, 1 << 20))
        data = rng.integers(0, 1 << 32, words, dtype=np.uint32)
        result = cupy.zeros(1, dtype=cupy.uint32)
        kernel((int(rng.integers(1, 300)),), (THREADS,), (cupy.asarray(data), np.uint64(words // 4), result))
        assert int(result[0]) == np.bitwise_xor.reduce(data), seed


def test_the_ceiling_is_a_bandwidth():
    ceiling = read_ceiling(runs=5)
    assert 0 < ceiling.median <= ceiling.best
    assert ceiling.best < 20e12
    assert ceiling.size > 4 * ceiling.last_level_cache
    assert len(ceiling.seconds) == 5

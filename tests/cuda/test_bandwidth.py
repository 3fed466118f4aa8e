"""Bandwidth probes on a GPU: they read the same as numpy, and the bandwidth is plausible."""

import numpy as np
import pytest
from in_child import device, in_child

from common.compile.nvrtc import options
from experiments.timing.bandwidth import KERNELS, THREADS, TILE, WAYS, read_ceiling, text

pytestmark = [pytest.mark.cuda, pytest.mark.covers]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.kernel)
@in_child()
def test_every_word_is_read(seed, way):
    import cupy

    if device().arch < way.min_arch:
        pytest.skip(f"{way.name} need sm_{way.min_arch}")
    rng = np.random.default_rng(seed)
    kernel = cupy.RawModule(code=text(KERNELS), options=options()).get_function(way.kernel)
    for passes in (1, 2, 3, 5, 5):
        count = int(rng.integers(1, (1 << 22) // way.unit))
        data = rng.integers(0, 1 << 32, count * way.unit // 4, dtype=np.uint32)
        result = cupy.zeros(1, dtype=cupy.uint32)
        arguments = cupy.asarray(data, blocking=True), np.uint64(count), np.uint32(passes), result
        kernel((int(rng.integers(1, 300)),), (THREADS,), arguments)
        assert int(result[0]) == (np.bitwise_xor.reduce(data) if passes % 2 else 0), seed


@in_child()
def test_the_ceiling_is_a_bandwidth():
    ceiling = read_ceiling()
    assert 0 < ceiling.best < 20e12
    assert ceiling.size > 4 * ceiling.last_level_cache
    assert ceiling.size % TILE == 0

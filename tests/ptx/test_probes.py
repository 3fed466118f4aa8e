"""Probes of reading on the PTX device: which words each block reads, added up by hand."""

import numpy as np
import pytest

from experiments.ptx.__main__ import main
from experiments.timing.bandwidth import text
from experiments.timing.window import BATCH, KERNELS

pytestmark = pytest.mark.cpu
BLOCKS = 3


def loaded(kernel, tmp_path, cache, block, shared, unit, units, most, *shape):
    """Sums of what each block has loaded from words 0, 1, 2, ...: `units` of `unit` bytes, in `most` turns."""
    source = tmp_path / "window.cu"
    source.write_text(text(KERNELS))
    words = [f"{{type: u32, value: {each}}}" for each in (most, *shape)]
    data = f"{{type: u32, shape: {units * unit // 4}, fill: arange}},{{type: u64, value: {units}}}"
    places = ",".join(f"{{name: {name}, type: u64, shape: {BLOCKS}, fill: zeros}}" for name in ("loaded", "clocks"))
    arguments = f"arguments=[{data},{','.join(words)},{places}]"
    keys = [f"kernel={kernel}", f"grid={BLOCKS}", f"block={block}", f"shared={shared}", "races=false"]
    assert main([str(source), *keys, arguments, f"out={tmp_path}", f"cache={cache}"]) == 0
    return np.load(tmp_path / "loaded.npy").tolist()


def test_loads_of_a_block_go_around_in_its_own_part(tmp_path, cpu_cache, seed):
    random = np.random.default_rng(seed)
    loaders, turns = 32 * int(random.integers(1, 4)), int(random.integers(1, 20))
    units = BLOCKS * int(random.integers(loaders, 500)) + int(random.integers(BLOCKS))
    part = units // BLOCKS
    sums = loaded("window_plain", tmp_path, cpu_cache, loaders, 0, 16, units, turns, loaders)
    for block, found in enumerate(sums):
        at = (np.arange(loaders)[:, None] + loaders * np.arange(BATCH * turns)) % part
        assert found == (4 * (4 * (block * part + at)) + 6).sum(), (block, loaders, turns, units)


def test_bulk_copies_of_a_block_go_around_in_its_own_part(tmp_path, cpu_cache, seed):
    random = np.random.default_rng(seed)
    slots, tile, turns = int(random.integers(1, 5)), 16 * int(random.integers(1, 64)), int(random.integers(1, 20))
    units = int(random.integers(BLOCKS, 20))
    part, words = units // BLOCKS, tile // 4
    sums = loaded("window_bulk", tmp_path, cpu_cache, 32, slots * tile, tile, units, turns, slots, tile)
    for block, found in enumerate(sums):
        first = words * (block * part + np.arange(turns) % part)
        assert found == words * first.sum(), (block, slots, tile, turns, units)

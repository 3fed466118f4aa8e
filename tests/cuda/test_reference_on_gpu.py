"""The reference where torch computes it on the GPU: the steps of the CPU, up to the order of float64 sums."""

import pytest
import torch

from common.model.layout import Layout
from common.model.weights import load
from common.validate.reference import Reference

pytestmark = pytest.mark.cuda


def test_another_order_of_sums_on_the_gpu_changes_the_last_bits_only(tiny, cpu_cache, seed):
    layout, weights = Layout(tiny), load("synthetic", tiny, None, cpu_cache, seed)[2].flat
    cache = torch.randn(layout.cache.shape, generator=torch.Generator().manual_seed(seed)).bfloat16()
    want = Reference(layout, weights).step(7, 40, cache)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    got = Reference(layout, weights, pieces=3, device=device).step(7, 40, cache, want.stored)
    for tap, value in want.values.items():
        assert got[tap].device.type == "cpu"
        torch.testing.assert_close(got[tap], value, rtol=1e-11, atol=1e-12)
    assert got.token == want.token

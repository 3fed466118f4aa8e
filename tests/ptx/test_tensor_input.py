"""A warp's share of the columns by tensor cores, against exact integers, however it is divided."""

import random
from itertools import product

import pytest
import torch
from sampled import sampled

from common.errors import Crashed

pytestmark = pytest.mark.cpu

# Few weights of a row are not 0, so that sums of elements with 20 bits, which need three terms, are exact in fp32.
BODY = """constexpr int K = {K}, most = {most}, count = {count}, warps = block_threads / 32;
  const auto weight = [](int r, int k) {{ return (r * 7 + k * 13) % 61 == {seed} ? k % 5 - 2 : 0; }};
  for (int k = threadIdx.x; k < K; k += block_threads) {{
    if (blockIdx.x == 0) out[count + k] = 0;
    s.x[k] = float(k * 524287ll % 1048573 - 524288);
    for (int r = 0; r < count; ++r) s.weights[r][k] = __float_as_uint(float(weight(r, k))) >> 16;
  }}
  block_barrier();
  TensorInput<K, most, {tiles}> x;
  x.take(reinterpret_cast<bf16 *>(s.terms), Vector{{s.x}});
  const auto row = [&](int t, int r) {{ return SharedRow<Bf16, K>{{s.weights[t * most + r]}}; }};
  x.multiply<most, {tiles}>(count, row, s.part[warp()]);
  block_barrier();
  if (blockIdx.x != 0) return;
  for (int r = threadIdx.x; r < count; r += block_threads) {{
    out[r] = 0;
    for (int w = 0; w < warps; ++w) out[r] += s.part[w][r];
  }}
  x.each_once([&](int k, float value) {{ out[count + k] += value; }});"""
SHARED = """alignas(16) float x[{K}];
  alignas(16) bf16 weights[{count}][{K}];
  alignas(16) unsigned char terms[TensorInput<{K}, {most}, {tiles}>::bytes];
  float part[{threads} / 32][{count}];"""


# Columns of a warp: half a line, whole lines, an odd number of them, and not as many in each; one, two and three
# packets of a lane in one load; terms in one turn and in two. Rows of a product: 8, 4 and 2; fewer rows than these, as
# many, and more; and of two tiles at once.
COLUMNS = ((16, 32), (64, 32), (192, 32), (200, 64), (256, 64), (512, 64), (768, 64), (1664, 64), (1600, 96))
ROWS = (
    (20, 17),
    (8, 8),
    (6, 5),
    (4, 4),
    (3, 2),
    (2, 2),
    (2, 1),
    (1, 1),
    (8, 13),
    (6, 12),
    (4, 7),
    (3, 4),
    (2, 3),
    (1, 2),
)

# NVRTC copies the shuffles of a sum, and mma, into both branches that lanes take: docs/limits.md. No stack has these.
COPIED = {(20, 17), (8, 13), (6, 12)}


@pytest.mark.parametrize(("columns", "rows"), sampled(list(product(COLUMNS, ROWS)), 8), ids=str)
def test_products_and_columns(launch, seed, columns, rows, request):
    if rows in COPIED:
        request.applymarker(pytest.mark.xfail(raises=Crashed, strict=True))
    (width, threads), (most, count) = columns, rows
    of = {"K": width, "most": most, "count": count, "threads": threads, "seed": random.Random(seed).randrange(61)}
    of["tiles"] = 2 if count > most else 1
    session = launch(BODY.format(**of), SHARED.format(**of), threads=threads)
    k = torch.arange(width)
    x = k * 524287 % 1048573 - 524288
    weights = torch.stack([torch.where((r * 7 + k * 13) % 61 == of["seed"], k % 5 - 2, 0) for r in range(count)])
    assert session.scratch()[:count].tolist() == (weights @ x).tolist(), of
    assert session.scratch()[count : count + width].tolist() == x.tolist(), of

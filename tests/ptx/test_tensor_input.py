"""A warp's share of the columns by tensor cores, against exact integers, however it is divided."""

import random
from itertools import product

import pytest
import torch
from sampled import sampled

pytestmark = pytest.mark.cpu

# Few weights of a row are not 0, so that sums of elements with 20 bits, which need three terms, are exact in fp32.
BODY = """constexpr int K = {K}, count = {count}, most = {most}, warps = block_threads / 32;
  const auto weight = [](int r, int k) {{ return (r * 7 + k * 13) % 61 == {seed} ? k % 5 - 2 : 0; }};
  if (threadIdx.x == 0)
    for (int t = 0; t < slots; ++t) {{
      mbarrier_init(&s.full[t], 1);
      mbarrier_init(&s.empty[t], warps);
    }}
  for (int k = threadIdx.x; k < K; k += block_threads) {{
    if (blockIdx.x == 0) out[count + k] = 0;
    s.x[k] = float(k * 524287ll % 1048573 - 524288);
    for (int r = 0; r < count; ++r)
      reinterpret_cast<bf16 *>(s.slot[r / most])[r % most * K + k] = __float_as_uint(float(weight(r, k))) >> 16;
  }}
  block_barrier();
  if (threadIdx.x == 0)
    for (int t = 0; t < slots; ++t) mbarrier_arrive(&s.full[t]);
  using Input = TensorInput<K, most, {products}>;
  TensorTiles<Kernel, MatVec<Bf16, K>, Input> tiles(c, RingPosition<slots>(0), count);
  Input x[1];
  x[0].take(reinterpret_cast<bf16 *>(s.terms), Vector{{s.x}});
  tiles.multiply(c, x, count, s.part[warp()], 0);
  for (int t = 0; t < slots; ++t) wait_for_phase(c, &s.empty[t], 0);
  block_barrier();
  if (blockIdx.x != 0) return;
  for (int r = threadIdx.x; r < count; r += block_threads) {{
    out[r] = 0;
    for (int w = 0; w < warps; ++w) out[r] += s.part[w][r];
  }}
  x[0].each_once([&](int k, float value) {{ out[count + k] += value; }});"""
SHARED = """alignas(16) float x[{K}];
  alignas(128) unsigned char slot[{slots}][{most} * {K} * 2];
  alignas(16) unsigned char terms[TensorInput<{K}, {most}, {products}>::bytes];
  Mbarrier full[{slots}], empty[{slots}];
  float part[{threads} / 32][{count}];"""
MEMBERS = """static constexpr int slots = {slots};
  template <class Job> struct Rows {{
    static constexpr int per_tile = {most};
    static DEVICE auto at(unsigned char *slot, int, int r) {{ return SharedRow<Bf16, {K}>{{slot + r * 2 * {K}}}; }}
  }};"""


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


@pytest.mark.parametrize(("columns", "rows"), sampled(list(product(COLUMNS, ROWS)), 8), ids=str)
def test_products_and_columns(launch, seed, columns, rows):
    (width, threads), (most, count), draw = columns, rows, random.Random(seed)
    of = {"K": width, "most": most, "count": count, "threads": threads, "seed": draw.randrange(61)}
    of |= {"products": draw.choice((1, 2)), "slots": -(-count // most)}
    texts = [text.format(**of) for text in (BODY, SHARED, MEMBERS)]
    session = launch(texts[0], texts[1], threads=threads, members=texts[2], races=True)
    k = torch.arange(width)
    x = k * 524287 % 1048573 - 524288
    weights = torch.stack([torch.where((r * 7 + k * 13) % 61 == of["seed"], k % 5 - 2, 0) for r in range(count)])
    assert session.scratch()[:count].tolist() == (weights @ x).tolist(), of
    assert session.scratch()[count : count + width].tolist() == x.tolist(), of

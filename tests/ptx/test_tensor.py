"""Instructions of tensor cores on the PTX device: which lane has which element, as PTX defines it, and misuse."""

import pytest
import torch

from common.errors import Crashed

pytestmark = pytest.mark.cpu

# A small whole number for each element of a, b and the next b, as bf16 the upper half of a float. Not a sum of
# multiples of i, j and k: to swap rows, columns or matrices of such numbers can leave their products as they are.
VALUE = """const auto value = [&](unsigned i, unsigned j, unsigned k) {{
    const unsigned mixed = ((i * 64 + j) * 64 + k + {0}u) * 2654435761u;
    return float(int((mixed ^ mixed >> 15) * 2246822519u >> 16) % 23 - 11); }};"""


def values(size: int, k: int, seed: int) -> torch.Tensor:
    """The same numbers: float64, [size, size]."""

    def value(i: int, j: int) -> int:
        mixed = ((i * 64 + j) * 64 + k + seed) * 2654435761 % 2**32
        return ((mixed ^ mixed >> 15) * 2246822519 % 2**32 >> 16) % 23 - 11

    return torch.tensor([[value(i, j) for j in range(size)] for i in range(size)]).double()


BF16 = "const auto upper = [&](int i, int j, int k) { return __float_as_uint(value(i, j, k)) >> 16; };"
MULTIPLY = """const int g = lane() / 4, q = lane() % 4;
  const auto row = [&](int i, int j) { return upper(i, j, 0) | upper(i, j + 1, 0) << 16; };
  const auto column = [&](int i, int j, int k) { return upper(i, j, k) | upper(i + 1, j, k) << 16; };
  Packet<16> a[2 * N], b[M * N];
  for (int n = 0; n < N; ++n) {
    const int first = 32 * n + 8 * q;
    for (int i = 0; i < 8; ++i)
      a[2 * n + i / 4].word[i % 4] = row(g + i % 2 * 8, first + i / 2 * 2);
    for (int i = 0; i < 4 * M; ++i) b[i / 4 * N + n].word[i % 4] = column(first + i % 4 * 2, g, 1 + i / 4);
  }
  const auto got = multiply_add<N, M>(a, b);
  if (blockIdx.x == 0 && warp() == 1)
    for (int i = 0; i < 4 * M; ++i)
      out[((i / 4 * 16) + g + i % 4 / 2 * 8) * 8 + 2 * q + i % 2] = got.sums[i / 4][i % 4];"""
ONES = "const Packet<16> a[2] = {}, b[1] = {};"


# Lanes meet once or more often: with as many words as they have room for.
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (3, 1), (5, 2)])
def test_products_of_matrices(launch, seed, n, m):
    first = seed % 2**20
    session = launch(VALUE.format(first) + BF16 + f"constexpr int N = {n}, M = {m};" + MULTIPLY, seed=seed)
    a, *others = (values(32 * n, k, first) for k in range(1 + m))
    products = torch.stack([a[:16] @ b[:, :8] for b in others])
    assert torch.equal(session.scratch()[: 128 * m].reshape(m, 16, 8).double(), products)


def test_products_are_exact(launch):
    """1 + 2^-7 squared has 15 bits: bf16 has 8."""
    session = launch(
        """const unsigned x = lane() == 0 ? __float_as_uint(1.0078125f) >> 16 : 0;
  const Packet<16> a[2] = {{{x}}, {{}}}, b[] = {{{x}}};
  const auto got = multiply_add<1, 1>(a, b);
  if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = got.sums[0][0];"""
    )
    assert float(session.scratch()[0]) == 1.0078125**2


def test_sums_are_not_more_exact_than_fp32(launch):
    """2^24 + 1 + 1, one after the other: each is lost in fp32, and in double both would stay."""
    session = launch(
        """const float x[] = {4096, 1, 1, 0};
  const unsigned mine = __float_as_uint(x[lane() % 4]) >> 16;
  const Packet<16> a[2] = {{{mine}}, {{}}}, b[] = {{{mine}}};
  const auto got = multiply_add<1, 1>(a, b);
  if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = got.sums[0][0];"""
    )
    assert float(session.scratch()[0]) == 2.0**24


def test_all_lanes_of_a_warp_multiply_together(launch):
    multiply = "out[blockIdx.x] = multiply_add<1, 1>(a, b).sums[0][0];"
    with pytest.raises(Crashed, match=r"a product of matrices without all lanes of the warp: .*test:1"):
        launch(f"{ONES} if (threadIdx.x != 40) {multiply}")
    with pytest.raises(Crashed, match="lanes of a warp wait for each other at two places"):
        launch(f"{ONES} if (lane() != 7) {multiply} else out[9] = __shfl_xor_sync(all_lanes, 1.0f, 1);")

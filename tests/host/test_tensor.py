"""Instructions of tensor cores on the host device: which lane has which element, as PTX defines it, and misuse."""

import random

import pytest
import torch

from common.errors import Crashed, Hung

pytestmark = pytest.mark.host

TILE = "alignas(16) unsigned short tile[{rows}][8];"
LOAD = """for (int i = port::thread(); i < 32 * 8; i += 64) s.tile[i / 8][i % 8] = i;
  port::block_barrier();
  const auto p = port::load_matrices(s.tile[{row}]);
  if (port::block() == 1)
    for (int m = 0; m < 4; ++m)
      for (int h = 0; h < 2; ++h) out[(port::thread() * 4 + m) * 2 + h] = p.word[m] >> (16 * h) & 0xffff;"""
# A small whole number for each element of a, b and the sums, as bf16 the upper half of a float.
VALUE = "const auto value = [&](int i, int j, int k) {{ return float((i * {0} + j * {1} + k * {2}) % 23 - 11); }};"
BF16 = "const auto upper = [&](int i, int j, int k) { return port::as_bits(value(i, j, k)) >> 16; };"
MULTIPLY = """const int g = lane() / 4, q = lane() % 4 * 2;
  const auto pair = [&](int i0, int j0, int i1, int j1, int k) { return upper(i0, j0, k) | upper(i1, j1, k) << 16; };
  const Packet<16> a = {{pair(g, q, g, q + 1, 0), pair(g + 8, q, g + 8, q + 1, 0), pair(g, q + 8, g, q + 9, 0),
                         pair(g + 8, q + 8, g + 8, q + 9, 0)}};
  const Packet<8> b = {{pair(q, g, q + 1, g, 1), pair(q + 8, g, q + 9, g, 1)}};
  const Sums sums = {{value(g, q, 2), value(g, q + 1, 2), value(g + 8, q, 2), value(g + 8, q + 1, 2)}};
  const auto got = port::multiply_add(a, b, sums);
  if (port::block() == 0 && warp() == 1)
    for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + q + i % 2] = got.value[i];"""


def test_each_lane_gets_two_elements_of_a_row_of_each_matrix(launch, seed):
    """Rows of the matrices anywhere in shared memory, here in another order for each warp."""
    session = launch(LOAD.format(row="(lane() * 5 + warp()) % 32"), TILE.format(rows=32), seed=seed)
    found = session.scratch()[:512].reshape(64, 4, 2).int().tolist()
    for thread, matrices in enumerate(found):
        lane, warp = thread % 32, thread // 32
        rows = [((8 * m + lane // 4) * 5 + warp) % 32 for m in range(4)]
        assert matrices == [[row * 8 + lane % 4 * 2, row * 8 + lane % 4 * 2 + 1] for row in rows]
    assert session.counts().bytes_by_width("shared")[128] == 3 * 64 * 16
    assert session.counts().total("shuffles") == 0


def test_a_product_of_two_matrices_is_added(launch, seed):
    steps = [random.Random(seed).randrange(1, 23) for _ in range(3)]
    session = launch(VALUE.format(*steps) + BF16 + MULTIPLY, seed=seed)
    i, j = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    a, b, sums = (((i * steps[0] + j * steps[1] + k * steps[2]) % 23 - 11).double() for k in range(3))
    assert torch.equal(session.scratch()[:128].reshape(16, 8).double(), (a @ b[:, :8]) + sums[:, :8])


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("reinterpret_cast<char *>(s.tile) + 8", "misaligned access at test:1"),
        ("out", "load_matrices .*scratch.* at test:1"),
        ("s.tile + 64", "load_matrices .*at test:1"),
    ],
)
def test_rows_are_16_bytes_of_shared_memory_at_a_multiple_of_16(launch, row, fault):
    with pytest.raises(Crashed, match=fault):
        launch(f"port::load_matrices({row});", TILE.format(rows=32))


def test_all_lanes_of_a_warp_load_and_multiply_together(launch):
    with pytest.raises(Hung) as hung:
        launch("if (port::thread() != 40) port::load_matrices(s.tile);", TILE.format(rows=1))
    assert "31 threads (first 32) waiting at a shuffle at test:1" in hung.value.report
    other = "else port::shuffle_xor(1.0f, 1);"
    where = "an instruction of tensor cores at test:1"
    with pytest.raises(Crashed, match=f"lanes of a warp meet at different places: .*{where}"):
        launch(f"if (lane() != 7) port::load_matrices(s.tile);\n{other}", TILE.format(rows=1))

"""Instructions of tensor cores on the host device: which lane has which element, as PTX defines it, and misuse."""

import random

import pytest
import torch

from common.errors import Crashed, Hung

pytestmark = pytest.mark.host

TILE = "alignas(16) unsigned short tile[{rows}][8];"
# A small whole number for each element of a, b and the sums, as bf16 the upper half of a float.
VALUE = "const auto value = [&](int i, int j, int k) {{ return float((i * {0} + j * {1} + k * {2}) % 23 - 11); }};"
BF16 = "const auto upper = [&](int i, int j, int k) { return port::as_bits(value(i, j, k)) >> 16; };"
# Rows of the 16 x 16 matrix a, 8 columns at a time, lie in shared memory in another order for each warp.
MULTIPLY = """const int g = lane() / 4, q = lane() % 4 * 2;
  const auto place = [](int row, int half) { return warp() * 32 + ((row + 16 * half) * 5 + warp()) % 32; };
  for (int i = lane(); i < 16 * 16; i += 32) s.tile[place(i / 16, i % 16 / 8)][i % 8] = upper(i / 16, i % 16, 0);
  port::block_barrier();
  const auto pair = [&](int i, int j, int k) { return upper(i, j, k) | upper(i + 1, j, k) << 16; };
  const Packet<8> b[] = {{{pair(q, g, 1), pair(q + 8, g, 1)}}, {{pair(q, g, 3), pair(q + 8, g, 3)}}};
  const Sums sums = {{value(g, q, 2), value(g, q + 1, 2), value(g + 8, q, 2), value(g + 8, q + 1, 2)}};
  const auto got = port::multiply_add<2>(s.tile[place(lane() % 16, lane() / 16)], b, sums);
  if (port::block() == 0 && warp() == 1)
    for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + q + i % 2] = got.value[i];"""


def test_products_of_two_matrices_are_added(launch, seed):
    steps = [random.Random(seed).randrange(1, 23) for _ in range(3)]
    session = launch(VALUE.format(*steps) + BF16 + MULTIPLY, TILE.format(rows=64), seed=seed)
    i, j = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    a, b, sums, more = (((i * steps[0] + j * steps[1] + k * steps[2]) % 23 - 11).double() for k in range(4))
    assert torch.equal(session.scratch()[:128].reshape(16, 8).double(), a @ (b + more)[:, :8] + sums[:, :8])
    assert session.counts().bytes_by_width("shared")[128] == 3 * 64 * 16
    assert session.counts().total("shuffles") == 0


def test_the_last_of_several_matrices_is_added_first(launch):
    """1 - 1 + 2^-30, each in the first element of a matrix: from the other end the least of them would be lost."""
    session = launch(
        """const auto first = [](float x) { return lane() == 0 ? port::as_bits(x) >> 16 : 0u; };
  const Packet<8> b[] = {{{first(9.31322575e-10f)}}, {{first(-1)}}, {{first(1)}}};
  for (int k = 0; k < 8 && port::thread() < 32; ++k) s.tile[lane()][k] = k == 0 ? first(1) : 0;
  port::block_barrier();
  const auto got = port::multiply_add<3>(s.tile[lane()], b, Sums{});
  if (port::block() == 0 && port::thread() == 0) out[0] = got.value[0];""",
        TILE.format(rows=32),
    )
    assert float(session.scratch()[0]) == 2.0**-30


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("reinterpret_cast<char *>(s.tile) + 8", "misaligned access at test:1"),
        ("out", "multiply_add .*scratch.* at test:1"),
        ("s.tile + 64", "multiply_add .*at test:1"),
    ],
)
def test_rows_are_16_bytes_of_shared_memory_at_a_multiple_of_16(launch, row, fault):
    with pytest.raises(Crashed, match=fault):
        launch(f"const Packet<8> b = {{}}; port::multiply_add<1>({row}, &b, {{}});", TILE.format(rows=32))


def test_all_lanes_of_a_warp_load_and_multiply_together(launch):
    with pytest.raises(Hung) as hung:
        launch(
            "const Packet<8> b = {}; if (port::thread() != 40) port::multiply_add<1>(s.tile, &b, {});",
            TILE.format(rows=1),
        )
    assert "31 threads (first 32) waiting at a shuffle at test:1" in hung.value.report
    other = "else port::shuffle_xor(1.0f, 1);"
    where = "an instruction of tensor cores at test:1"
    with pytest.raises(Crashed, match=f"lanes of a warp meet at different places: .*{where}"):
        launch(
            f"const Packet<8> b = {{}}; if (lane() != 7) port::multiply_add<1>(s.tile, &b, {{}});\n{other}",
            TILE.format(rows=1),
        )

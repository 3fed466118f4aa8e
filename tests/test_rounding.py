"""Error of a rounding to bf16, and of a row to 8 bits with a scale: nothing for a legal one."""

import pytest
import torch

from common.model.format import read_kv_format
from common.validate.rounding import rounding_error, row_error, wrong_ties


def test_rounding_error_by_hand():
    # bf16 near 1 has steps of 2^-7 above and 2^-8 below; near 0 the smallest step is 2^-133
    got = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, -2.0, 0.0, torch.nan, torch.inf], dtype=torch.float64)
    want = torch.tensor([1, 1 + 2**-8, 1 + 2**-7, 1 - 2**-9, 1 - 2**-8, -2 - 2**-6, 0, 0, 1], dtype=torch.float64)
    error = rounding_error(got, want)
    assert error[:7].tolist() == [0, 0, 2**-8, 0, 2**-9, 2**-7, 0]
    assert error[7:].isnan().all()


def test_every_float_accepts_its_own_rounding(seed):
    torch.manual_seed(seed)
    floats = torch.randn(10000) * 2.0 ** torch.randint(-40, 40, (10000,))
    want = floats.double()
    assert rounding_error(floats.bfloat16().double(), want).max() <= 0, seed
    up = torch.nextafter(floats.bfloat16(), torch.full((10000,), torch.inf, dtype=torch.bfloat16)).double()
    # A neighbour is legal only for a want half way to it
    assert (rounding_error(up, want) > 0).float().mean() > 0.99


def row(kind: str, codes: list[int], scale: float) -> torch.Tensor:
    """A row of eight numbers, and its scale from byte 16 on."""
    words = torch.zeros(32, dtype=torch.uint8)
    words[:8] = torch.tensor(codes)
    words[16:18] = torch.tensor([scale]).bfloat16().view(torch.uint8)
    return words.view(torch.bfloat16)


def test_error_of_a_row_by_hand():
    """Scale 2: steps of 2 in int8; in fp8 of 64 at 448 on one side, of 2^-8 near 0, and of 1/2 and 1/4 at 2."""
    int8 = row("int8", [255, 130, 130, 130, 128, 1, 127, 128], 2)
    want = torch.tensor([254, 3, 5, 5.5, -1.25, -254, -1.5, 0], dtype=torch.float64)
    assert row_error(read_kv_format("int8"), int8, want).tolist() == [0, 0, 0, 0.5, 0.25, 0, 0, 0]
    fp8 = row("fp8", [0x7E, 0x38, 0x38, 0x38, 0x38, 0, 0x81, 0xFE], 2)
    want = torch.tensor([896, 2.125, 2.1875, 1.9375, 1.875, 2**-9, -(2**-9), -840], dtype=torch.float64)
    assert row_error(read_kv_format("fp8"), fp8, want).tolist() == [0, 0, 0.0625, 0, 0.0625, 0, 0, 8 * 3]


def test_a_scale_must_be_the_smallest():
    form, want = read_kv_format("int8"), torch.tensor([127.0, *[0.0] * 7], dtype=torch.float64)
    for scale, first, legal in ((1, 255, True), (2, 128 + 64, False), (1 + 2**-6, 128 + 125, False), (0.5, 255, False)):
        assert (row_error(form, row("int8", [first, *[128] * 7], scale), want).max() == 0) == legal, scale
    assert row_error(form, row("int8", [128] * 8, 1), 0 * want).max() == 0  # nothing was rounded


def test_a_number_half_way_is_even_by_hand():
    """Scale 2: 3 and 5 are half way between numbers of int8, as 2.125 and 2.375 are of fp8."""
    want = torch.tensor([3, 3, 5, 5, -3, -3, 4, 5 + 2**-40], dtype=torch.float64)
    rows = row("int8", [129, 130, 130, 131, 126, 127, 130, 130], 2)
    assert wrong_ties(read_kv_format("int8"), rows, want).nonzero().flatten().tolist() == [0, 3, 5]
    want = torch.tensor([2.125, 2.125, 2.375, 2.375, -2.375, 2**-9, 2**-9, 2.0], dtype=torch.float64)
    rows = row("fp8", [0x38, 0x39, 0x39, 0x3A, 0xB9, 0, 1, 0x38], 2)
    assert wrong_ties(read_kv_format("fp8"), rows, want).nonzero().flatten().tolist() == [1, 2, 4, 6]


@pytest.mark.parametrize("bad", [row("int8", [0, *[128] * 7], 1), row("int8", [128] * 8, 0)], ids=["number", "scale"])
def test_bits_that_are_no_number_have_no_error(bad):
    assert row_error(read_kv_format("int8"), bad, torch.zeros(8, dtype=torch.float64)).isnan().any()


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_a_row_accepts_its_own_rounding_and_not_its_neighbor(kind, seed):
    form, random = read_kv_format(kind), torch.Generator().manual_seed(seed)
    want = torch.randn(200, 40, generator=random).double() * 2.0 ** torch.randint(-30, 30, (200, 1), generator=random)
    rows = form.encode(want)
    rounding = want.abs().amax(1, keepdim=True) * 2**-22  # fp32's, in which numbers are rounded
    assert (row_error(form, rows, want) <= rounding).all()
    words = rows.view(torch.uint8).clone()
    words[:, 7] ^= 1  # the number below or above
    wrong = row_error(form, words.view(torch.bfloat16), want)[:, 7]
    assert ((wrong > rounding[:, 0]) | wrong.isnan()).float().mean() > 0.95

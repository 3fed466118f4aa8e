"""Error of a rounding to bf16: nothing for a legal one."""

import torch

from common.validate.rounding import rounding_error


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

"""Sums that count their addends: equal to integers added in Python, in any order; a sum that does not fit is a NaN."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from composed import CATALOG

from common.compile.source import build
from common.model.layout import NOT_SENT
from common.stacks.variant import Variant

pytestmark = pytest.mark.cpu
UNITS = 2**32
STACK = ("joint_heads", "folded_norm", "by_value", "counted_sums")
# Block b adds its numbers to all sums of layer 1 for the turn that is under way; the last one to have them stores them.
BODY = """template <class Base> struct Part : Base { static DEVICE void step(const Context &c) {
  const float *own = c.scratch + scratch_at::workspace + blockIdx.x * model::hidden;
  for (int i = threadIdx.x; i < model::hidden; i += block_threads)
    add_relaxed(sums(c, c.turn, 1) + i, addend(own[i]));
  for (int i = 4 * threadIdx.x; blockIdx.x == 0 && i < model::hidden; i += 4 * block_threads) {
    const auto sum = arrive_sums<4, 4, 4>(c, 1, i);
    for (int j = 0; j < 4; ++j) tap<Stage::o_proj>(c, 1)[i + j] = sum.value[j];
  }
} };
"""


@pytest.fixture(params=[4, 6, 16], ids="{} heads".format)
def model(request, tiny):
    return replace(tiny, heads=request.param)


@pytest.fixture
def add(open_session, synthetic, model, tmp_path):
    """add(numbers, seed): the sums of numbers [heads][hidden] as floats, and the words that hold them."""
    (tmp_path / "part.cu").write_text('#include "common/kernel/decode.cuh"\n' + BODY)
    part = Variant("part", tmp_path / "part.cu", idea="")
    source = build([*(CATALOG.variants[name] for name in STACK), part], model, 64, {})
    layout = source.layout

    def add_(numbers: torch.Tensor, seed: int) -> tuple[torch.Tensor, list[int]]:
        session = open_session(source, synthetic(model, 1), blocks=model.heads, schedule=seed)
        session.reset([1], 0)
        scratch = session.scratch()
        at = layout.global_scratch["workspace"].offset
        scratch[at : at + numbers.numel()] = numbers.flatten()
        session.write_scratch(scratch)
        session.run()
        after, slot, tap = session.scratch(), layout.global_scratch["sums"], layout.tap("o_proj", 1)
        places = after[slot.offset : slot.offset + slot.size].view(torch.int64).view(slot.shape[:-1])
        assert (places[0, 0] == NOT_SENT).all()
        assert (places[1] == NOT_SENT).all()
        return after[tap.offset : tap.offset + tap.size], places[0, 1].tolist()

    return add_


def limit(heads: int) -> float:
    """The first number that is too large: two counts take the bits of the number of heads each, one is spare."""
    return 2.0 ** (62 - 2 * heads.bit_length()) / UNITS / heads


def rounded(number: float) -> int:
    """To the nearest unit, ties to even."""
    return round(Fraction(number) * UNITS)


def test_sums_are_those_of_integers_in_any_order(add, model, seed):
    draw = random.Random(seed)
    largest = torch.nextafter(torch.tensor(limit(model.heads)), torch.tensor(0.0)).item()
    kinds = (
        lambda: draw.uniform(-1, 1) * 2.0 ** draw.randint(-40, 10),
        lambda: draw.randint(-9, 9) * 0.5 / UNITS,  # ties
        lambda: draw.choice((largest, -largest)),
        lambda: largest,
        lambda: -largest,
        lambda: draw.choice((0.0, -0.0, 1e-45, -1e-38)),
    )
    drawn = [[kinds[i % len(kinds)]() for i in range(model.hidden)] for _ in range(model.heads)]
    numbers = torch.tensor(drawn, dtype=torch.float32)
    totals = [sum(map(rounded, column)) for column in numbers.T.tolist()]
    want = torch.tensor([total / UNITS for total in totals], dtype=torch.float64).float()
    bits = model.heads.bit_length()
    for order in range(3):
        got, words = add(numbers, seed + order)
        assert torch.equal(got, want)
        assert words == [(total << 2 * bits) + model.heads - 1 for total in totals]


def test_what_does_not_fit_makes_the_sum_nan_and_no_other(add, model, seed):
    draw = random.Random(seed)
    numbers = torch.ones(model.heads, model.hidden)
    bad = {}
    for i in range(0, model.hidden, 3):
        kind = (float("nan"), float("inf"), -float("inf"), limit(model.heads), -limit(model.heads), 3e38)[i % 18 // 3]
        bad[i] = draw.sample(range(model.heads), model.heads if i % 2 else draw.randint(1, model.heads))
        numbers[bad[i], i] = kind
    got, words = add(numbers, seed)
    assert got.isnan().tolist() == [i in bad for i in range(model.hidden)]
    assert (got[~got.isnan()] == model.heads).all()
    bits = model.heads.bit_length()
    for i, wrong in bad.items():
        assert (words[i] + 1) % 2**bits == model.heads
        assert (words[i] + 1 >> bits) % 2**bits == len(wrong)

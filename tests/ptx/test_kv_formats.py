"""Entries of the KV cache in fp8 and int8: how a warp rounds a row, the stacks that read one, and the bytes of both."""

from dataclasses import replace
from itertools import product
from math import inf, nan

import pytest
import torch
from bare_kernel import bare_kernel
from composed import CATALOG, NAMED, STACKS, VARIANTS, Composed
from sampled import sampled

from common.config.resolve import model_named
from common.model.format import read_kv_format
from common.model.layout import Layout
from common.validate.scenarios import Start, drawn

pytestmark = pytest.mark.cpu
TINY = model_named("tiny")
PERSISTENT, STREAMING = (CATALOG.stacks[name] for name in ("persistent", "streaming"))
FORMATS = ("int8", "fp8")
# Rows of 24, whose scale lies behind a gap; of two packets in some lanes; of one packet in each lane, in whole lines.
HEADS = [replace(TINY, name=f"heads of {numbers}", head_dim=numbers) for numbers in (24, 136, 128)]
MODELS = (TINY, model_named("odd"), *HEADS)
CASES = [*product([*VARIANTS, *NAMED, *STACKS[-3:]], MODELS, FORMATS)]
USUAL = (Composed(()), *(Composed(stack.variants, stack.knobs) for stack in (PERSISTENT, STREAMING)))

# A row's first numbers, times any power of two, and what they become. The largest makes that power the scale.
BY_HAND = {
    "int8": (
        [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, -127, 0.49, 0.51, -63.5, 64.5, 3, -100],
        [127, 0, 2, 2, 0, -2, -2, 126, -126, -127, 0, 1, -64, 64, 3, -100],
    ),
    "fp8": (
        [448, 17, 19, -17, 432, 400, -448, 2**-9, 2**-10, 3 * 2**-10, 15 * 2**-10, -(2**-9), 1.0625, 0, 300, 0.9],
        [448, 16, 20, -16, 448, 384, -448, 2**-9, 0, 2**-8, 2**-6, -(2**-9), 1, 0, 288, 0.875],
    ),
}
STORE = """if (blockIdx.x != 0 || warp() != 0) return;
  for (int row = 0; row < {rows}; ++row) {{
    const Weight *from = c.weights + 2 * row * model::head_dim;
    EntryUnit *to = keys(c, 0, 0) + row * entry_units;
    const auto make = [&](auto put) {{
      for (int i = lane(); i < model::head_dim; i += 32)
        put(i, __uint_as_float(load_weights<4>(from + 2 * i).word[0]));
    }};
    store_entry(s.room, make, [&](int i, EntryUnit unit) {{ to[i] = unit; }});
  }}"""


@pytest.mark.parametrize("text", FORMATS)
def test_a_row_is_rounded_as_by_hand(text, open_session, seed):
    """Ties, the largest number, nothing, and numbers of any size; the rule of `Format.encode`, bit for bit."""
    model, form = TINY.in_formats(kv=text), read_kv_format(text)
    random, layout = torch.Generator().manual_seed(seed), Layout(model)
    given, wanted = (torch.tensor(each, dtype=torch.float64) for each in BY_HAND[text])
    powers = 2.0 ** torch.tensor([0, -37, 90])[:, None]
    by_hand = torch.zeros(3, model.head_dim)
    by_hand[:, : len(given)] = given * powers
    sizes = 2.0 ** torch.randint(-60, 60, (20, 1), generator=random)
    drawn_rows = torch.randn(20, model.head_dim, generator=random) * sizes
    tiny, lost = torch.full((1, model.head_dim), 2.0**-110), torch.ones(2, model.head_dim)
    lost[0, 5], lost[1, 9] = nan, -inf
    x = torch.cat((by_hand, torch.zeros(1, model.head_dim), drawn_rows, tiny, lost))
    weights = torch.zeros(layout.weights_size, dtype=torch.bfloat16)
    weights[: 2 * x.numel()] = x.view(-1).view(torch.bfloat16)
    source = bare_kernel(model, STORE.format(rows=len(x)), "float room[model::head_dim];")
    session = open_session(source, weights, 1, schedule=seed)
    session.reset([1], 0)
    session.run()
    rows = session.cache.entries(0, len(x))[0, 0, 0]
    got = form.decode(rows, model.head_dim)
    assert torch.equal(got[:3, : len(given)].double(), wanted * powers)
    assert not got[3].any()
    assert torch.equal(rows[:24].view(torch.int16), form.encode(x[:24]).view(torch.int16))
    assert not got[24].any()  # below the smallest number that a scale is made of
    assert got[25:].isnan().any(1).all(), "a number that is lost must not look like one"


@pytest.mark.parametrize(
    ("composed", "model", "text"), [*sampled(CASES, 2), *sampled(product(USUAL, MODELS[:2], FORMATS), 1)], ids=str
)
def test_a_stack_reads_and_stores_entries(composed, model, text, proved):
    proved(composed, model.in_formats(kv=text))


@pytest.mark.parametrize("text", sampled(FORMATS, 1))
def test_the_bytes_of_an_entry_are_moved_once(text, synthetic, open_session, seed):
    """A ring has each entry once, scale and all. Where lanes load, numbers are counted apart from their scales."""
    model, position = TINY.in_formats(kv=text), 9
    weights = synthetic(model, seed)
    (start,) = drawn([Start(position)], Layout(model), weights, torch.Generator().manual_seed(seed))
    numbers = model.layers * 2 * model.kv_heads * model.head_dim
    assert model.kv_bytes_per_position == numbers + model.layers * 2 * model.kv_heads * 16
    ring = Composed(("joint_heads", "by_value", "bulk_ring", "stream_kv")).source(model)
    plain, copied = Composed(("vec128",)).source(model), model.bytes_per_token(position - 1)  # its own is not copied
    for source, blocks in ((ring, 1), (plain, 8)):
        session = open_session(source, weights, blocks)
        session.reset(start.ids, position, start.history)
        counts = session.count()
        assert counts.total("stored_kv") == model.kv_bytes_per_position
        if source is ring:
            assert counts.total("copied_bulk") == copied
        else:
            shared = model.heads // model.kv_heads
            assert counts.bytes_by_width("kv")[128] == shared * numbers * (position + 1)

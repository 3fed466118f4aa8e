"""Kernels on matrices below bf16: equal to the reference with the same weights, and the bytes that they move."""

from dataclasses import replace
from itertools import product

import pytest
from composed import NAMED, STACKS, VARIANTS, Composed
from sampled import sampled

from common.config.resolve import model_named
from common.model.shapes import Model

pytestmark = pytest.mark.cpu
TINY = model_named("tiny")
MODELS = (TINY, model_named("odd"), replace(TINY, name="a head of 128", head_dim=128))
FORMATS = (("int8", "bf16"), ("fp8:32", "fp8:32"), ("int4:32", "int8:64"), ("int4:32:zeros", "bf16"))
STREAMED = ("joint_heads", "by_value", "bulk_ring", "columns", "tensor_rows")
LEAST = Composed(STREAMED, {"slots": 2, "kb": 6, "products": 1})
CASES = [*product([*VARIANTS, *NAMED, *STACKS[-3:], LEAST], MODELS, FORMATS)]


def in_formats(model: Model, formats: tuple[str, str]) -> Model:
    """One scale a row where groups do not divide the rows of `model`."""
    return model.like(TINY.in_formats(*formats))


@pytest.mark.parametrize(("composed", "model", "formats"), sampled(CASES, 3), ids=str)
def test_a_stack_decodes_weights_of_few_bits(composed, model, formats, proved):
    proved(composed, in_formats(model, formats))


@pytest.mark.parametrize("formats", FORMATS, ids=str)
def test_a_ring_moves_the_bytes_of_the_rows(formats, synthetic, open_session, seed):
    model = TINY.in_formats(*formats)
    session = open_session(Composed(("bulk_ring",)).source(model), synthetic(model, seed))
    session.reset([0], position=0)
    assert session.count().total("copied_bulk") == model.bytes_per_token(0) - model.kv_bytes_per_position


@pytest.mark.parametrize("formats", FORMATS, ids=str)
def test_loads_of_numbers_have_their_bytes(formats, synthetic, open_session, seed):
    """Scales are loaded by the lanes that need one, so the same bytes several times, and counted by their own width."""
    model = TINY.in_formats(*formats)
    session = open_session(Composed(("vec128",)).source(model), synthetic(model, seed))
    session.reset([0], position=0)
    loaded = session.count().bytes_by_width("weights")
    layer = sum(rows * columns for rows, columns in model.layer_matrices.values()) * model.layers
    wide = layer * model.formats[0].bits // 8 + model.vocab * model.hidden * model.formats[1].bits // 8
    gains = 2 * (2 * model.layers + 1) * model.hidden  # gains of norms, loaded by block 0
    heads = 2 * model.layers * (model.heads + model.kv_heads) * model.head_dim  # their gains, by 64 bits
    assert loaded.get(128, 0) + loaded.get(64, 0) - wide == gains + heads, loaded

"""Stored keys and values against the reference: the validator's own test of entries."""

from collections.abc import Iterable, Sequence

from common.model.layout import Layout
from common.validate.check import half_way, rounding_error
from common.validate.tolerances import ReferenceSteps
from experiments.generation.engine import Engine


def check_entries(engine: Engine, ids: Sequence[int], positions: Iterable[int] | None = None) -> None:
    """Assert that every entry in the engine's KV cache is a legal rounding, with `ids` from position 0 on."""
    weights, cache = engine.setup.packed.flat, engine.session.cache()
    steps = ReferenceSteps(engine.model, Layout(engine.model), weights)
    for position in positions or range(len(ids)):
        stored = cache[:, :, :, position].clone()
        reference, allowed = steps.step(ids[position], position, cache, stored)
        for layer in range(engine.model.layers):
            for kind, tap in enumerate(("key", "value")):
                got, want = stored[layer, kind].double(), reference[tap, layer]
                assert (rounding_error(got, want) <= allowed[tap, layer]).all(), (position, layer, tap)
                assert not (half_way(want) & (got != want.bfloat16().double())).any(), (position, layer, tap)

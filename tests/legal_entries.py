"""Stored keys and values against the reference: the validator's own test of entries."""

from collections.abc import Iterable, Sequence

from torch import Tensor

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import Past
from common.validate.rounding import half_way, rounding_error, row_error
from common.validate.tolerances import ReferenceSteps


def check_entries(
    model: Model, weights: Tensor, cache: Tensor, ids: Sequence[int], positions: Iterable[int] | None = None
) -> None:
    """Assert that every entry in a KV cache, or at `positions`, is a legal rounding for `ids` from 0 on."""
    layout = Layout(model)
    steps, form = ReferenceSteps(layout, weights), layout.cache.format
    for position in positions or range(len(ids)):
        stored = cache[:, :, :, position].clone()
        reference, allowed = steps.step(ids[position], Past.of(cache[:, :, :, :position]), stored)
        for layer in range(model.layers):
            for kind, tap in enumerate(("key", "value")):
                rows, want = stored[layer, kind], reference[tap, layer]
                got = form.decode(rows, model.head_dim).double()
                error = row_error(form, rows, want) if form.scaled else rounding_error(got, want)
                assert (error <= allowed[tap, layer]).all(), (position, layer, tap)
                if form.scaled:
                    continue
                assert not (half_way(want) & (got != want.bfloat16().double())).any(), (position, layer, tap)

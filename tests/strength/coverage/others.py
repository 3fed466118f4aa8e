"""Stacks with text that no stack of the catalog in bf16 with its usual knobs has."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.model.format import read_formats
from common.model.shapes import Model
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, choose_stacks
from tests.strength.mutants.generated import SCALED, VERIFY_ROWS

# Variants, formats and knobs.
OTHERS: tuple[tuple[Sequence[str], str, Mapping[str, Any]], ...] = (
    *((names, formats, {}) for names, formats in SCALED.items()),
    (("graph",), "bf16", {"how": "pdl"}),
    (("redundant_rmsnorm", "vec128", "l2_prefetch", "verify"), "bf16", {}),
    *((VERIFY_ROWS, "bf16", {"tokens": tokens}) for tokens in (2, 4)),
)


def others(model: Model, threads: int) -> list[tuple[Model, Stack]]:
    """Each with `model` in its formats."""
    return [
        (model.in_formats(*read_formats(formats)), stack)
        for names, formats, knobs in OTHERS
        for stack in choose_stacks(read_catalog(), BASELINE, names, knobs, threads)
    ]

"""Offsets in the cache are products of 64 bits: at many positions a later layer's are beyond 2^31 elements.

No test has such a cache, so the texts are read.
"""

import re
from pathlib import Path

import pytest

from common import ROOT
from tests.strength.mutants.operators import code

SOURCES = [*(ROOT / "common" / "kernel").glob("*.cuh"), *(ROOT / "variants").glob("*.cu")]
# model::positions, c.position or position(lane) times a size of the model or of an entry, or anything times
# model::positions.
PRODUCT = re.compile(r"[\w:.]*\bpositions?\b(?:\(.*?\))?\)? \* (?:model::|entry_)|\* model::positions")
# Counted from the start of a tile in shared memory.
SMALL = ("first + position * entry_units", "key + position(i) * entry_units")


def narrow(text: str) -> list[str]:
    """Products of positions without a factor that is made 64 bits wide before them."""
    statements = [" ".join(each.split()) for each in re.split(r"[;{}]", code(text))]
    return [
        each
        for each in statements
        if (found := PRODUCT.search(each))
        and "size_t(" not in each[: found.end()]
        and not any(small in each for small in SMALL)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_products_of_positions_are_wide(path: Path):
    assert narrow(path.read_text()) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("common/kernel/entries.cuh", "(size_t(layer) *", "(layer *"),
        ("common/kernel/decode.cuh", "size_t(c.position) *", "c.position *"),
        ("common/kernel/attention.cuh", "size_t(position) *", "position *"),
        ("variants/joint_heads.cu", "size_t(c.position) *", "c.position *"),
    ],
)
def test_a_narrow_one_is_seen(name, old, new):
    text = (ROOT / name).read_text()
    assert old in text
    assert narrow(text.replace(old, new))

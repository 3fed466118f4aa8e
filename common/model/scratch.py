"""Regions of scratch that variants declare in their yaml, for words exchanged by flag-in-data."""

import re
from collections.abc import Mapping

from common.errors import LabError
from common.model.expressions import SHAPES, check
from common.model.stages import STAGES

NAMES = (*SHAPES, "max_blocks", "taps")  # in the shape of a region; taps: elements of all layers' taps
FIXED = ("layers", "rope", "partial", "workspace", "seen", "trace", *STAGES)  # names in scratch, taken for regions

Scratch = Mapping[str, tuple[str, ...]]  # shapes of regions by name, as expressions over NAMES


def read_scratch(scratch: Mapping[str, object]) -> Scratch:
    """The `scratch` of a variant's yaml, checked: `parts: [2, layers, heads, 16, head_dim + 4]`.

    A region has 32-bit words exchanged by flag-in-data: a reset fills them with `layout.NOT_SENT`. Its first size
    is a number of turns, each a step of the kernel (buffers in rotation); a step leaves the next turn's words at the
    sentinel, which validation checks. The other sizes are of one turn. Expressions may use NAMES.
    Raises LabError for an invalid or taken name, and for a malformed shape.
    """
    for name, shape in scratch.items():
        place = f"scratch.{name}: {shape}"
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in FIXED or name.endswith("_size"):
            raise LabError(place, "give it another name, of small letters")
        if not isinstance(shape, list) or len(shape) < 2:
            raise LabError(place, "give a list: turns, then the sizes of one turn")
        for size in shape:
            check(str(size), NAMES, place)
    return {name: tuple(map(str, shape)) for name, shape in scratch.items() if isinstance(shape, list)}

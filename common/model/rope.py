"""Scaling of RoPE's frequencies, as one text: `default`, or Llama 3's such as `llama3:32:1:4:8192`."""

import math
import re
from dataclasses import dataclass, fields

from common.errors import LabError

DEFAULT, LLAMA3 = "default", "llama3"
NUMBER = r"[0-9.e+-]+"
SPELLING = re.compile(rf"{LLAMA3}:({NUMBER}):({NUMBER}):({NUMBER}):({NUMBER})")


@dataclass(frozen=True)
class Scaling:
    """Llama 3's scaling: pairs that turn seldom within the context of the training turn more slowly.

    A pair that turns n times in `positions` keeps its frequency from n = high on. Up to n = low it is divided by
    `factor`. Between them the share (n - low) / (high - low) is kept, and the rest divided. Published as
    `apply_scaling` in Meta's llama-models, models/llama3/model.py, and as `rope_type` "llama3" in transformers.
    factor 1 scales nothing.
    """

    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    positions: float = 8192.0

    def __str__(self) -> str:
        numbers = (repr(getattr(self, field.name)).removesuffix(".0") for field in fields(self))
        return ":".join((LLAMA3, *numbers))


def read_rope(text: str) -> Scaling:
    """The scaling of a text; factor 1 for `default`.

    Raises LabError for another text, for numbers without a meaning, and for another spelling of the same.
    """
    if text == DEFAULT:
        return Scaling()
    spelled = SPELLING.fullmatch(text)
    try:
        found = Scaling(*map(float, spelled.groups())) if spelled else None
    except ValueError:
        found = None
    sensible = found and 1 <= found.factor < math.inf and 0 < found.low < found.high < math.inf
    if not found or not sensible or not 1 <= found.positions < 2**31 or str(found) != text:
        raise LabError(
            f"rope {text!r} is not known",
            f"give {DEFAULT}, or {LLAMA3}:FACTOR:LOW:HIGH:POSITIONS, such as {LLAMA3}:32:1:4:8192, with a factor of at "
            "least 1, 0 < LOW < HIGH and the positions of the training",
        )
    return found

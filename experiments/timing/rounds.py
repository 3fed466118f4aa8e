"""Kernels that repeat one exchange, made of the variants' text: alone, or beside reading through the variants' ring.

They measure what an exchange costs, and how much of that is exposed where a block reads meanwhile.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from common.compile.source import Source, build
from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from common.stacks.catalog import Catalog
from common.stacks.knobs import Knob
from common.stacks.variant import Variant

FILE = Path(__file__).with_suffix(".cu")
RING = "bulk_ring"
LONGEST_ROW = 8192  # bytes: a tile of the ring has a row of each of two matrices
MECHANISMS = {  # ways to exchange, each with the variant that brings it; the baseline has the first one
    "cooperative barrier, then loads": (),
    "atomic counter, then loads": ("atomic_barrier",),
    "by value": ("by_value",),
}
ROUNDS = Variant(
    "rounds",
    FILE,
    "rounds of one exchange",
    knobs=(
        Knob("exchanges", "int", 1, "1: blocks wait for each other's words", 0, 1),
        Knob("reads", "int", 0, "1: words are also sums of rows that are read", 0, 1),
        Knob("count", "int", 1, "rounds of a launch", 1, sets="tokens_per_launch"),
    ),
)


@dataclass(frozen=True)
class Rounds:
    """Exchanges in a row between `blocks` blocks.

    mechanism  one of MECHANISMS; None: blocks only read
    words      fp32 values that a round exchanges
    kb         KB that each block reads in a round; 0: it reads nothing
    window     tiles of the ring under way at most, where a block reads
    """

    mechanism: str | None
    words: int
    blocks: int
    kb: int = 0
    window: int = 0

    @property
    def columns(self) -> int:
        """Elements of a row, of two matrices of bf16 with a row for each word. Raises LabError where none is right."""
        columns = (self.kb << 10) * self.blocks // (4 * self.words) // 8 * 8 if self.kb else 8
        if not 8 <= columns <= LONGEST_ROW // 2:
            cause = f"{self.words} rows for {self.kb} KB of each of {self.blocks} blocks have {2 * columns:,} bytes"
            raise LabError(f"{cause}, and a tile of the ring takes 16 to {LONGEST_ROW:,}", "give more or fewer words")
        return columns

    def source(self, catalog: Catalog, threads: int, rounds: int) -> Source:
        """The kernel, which does `rounds` rounds in a launch. Raises LabError."""
        names = (*(MECHANISMS[self.mechanism] if self.mechanism else ()), *([RING] if self.kb else []))
        stack = [*(catalog.variants[name] for name in names), ROUNDS]
        knobs = {variant.name: {knob.name: knob.default for knob in variant.knobs} for variant in stack}
        knobs[ROUNDS.name] = {"exchanges": int(bool(self.mechanism)), "reads": int(bool(self.kb)), "count": rounds}
        if self.kb:
            knobs[RING]["window"] = self.window
        shape = Model("rounds", self.columns, self.words, rounds, 1, 1, 8, 8, rounds + 1, 1e4, 1e-6, True)
        return build(stack, shape, threads, knobs)


@lru_cache(maxsize=1)  # rows of one shape follow each other, and a GPU keeps the weights that it has
def weights(model: Model) -> torch.Tensor:
    """Zeros for a kernel of this shape: bf16, [weights_size]."""
    return torch.zeros(Layout(model).weights_size, dtype=torch.bfloat16)


def words(source: Source, scratch: torch.Tensor) -> torch.Tensor:
    """The words of the last round, each the number of rounds: fp32, [words]. scratch: of a session after its launch."""
    return source.layout.tap("gate_up", source.model.layers - 1).of(scratch)

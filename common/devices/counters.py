"""Counts of a CPU device: exchanges, atomics and bytes moved; exact, per stage, and equal on every machine."""

from dataclasses import dataclass

import numpy as np

from common.display.table import Shown
from common.errors import known
from common.model.stages import STAGES

WIDTHS = (2, 4, 8, 16)  # bytes of one load
DATA = ("weights", "kv", "activations", "shared")  # three kinds of global memory, and shared memory
FIELDS = (
    "grid_barriers",  # per grid, as the next two
    "counters",  # the last block to arrive at one goes on alone
    "by_value",  # exchanges without either: readers poll the values
    "block_barriers",  # summed over blocks
    "shuffles",  # summed over warps
    "atomics",
    "stored_activations",  # bytes, as all below
    "stored_kv",
    "prefetched",
    "copied_async",
    "copied_bulk",
    "kept",  # part of copied_bulk: with an L2 policy to keep them
    *(f"{data}_{8 * width}bit" for data in DATA for width in WIDTHS),
)


@dataclass(frozen=True, repr=False)
class Counts(Shown):
    """Counts of one or more steps. table: uint64, [len(STAGES), len(FIELDS)].

    The methods raise LabError for an unknown field, stage or kind of memory.
    """

    table: np.ndarray

    def total(self, field: str) -> int:
        """Summed over all stages."""
        return int(self.table[:, FIELDS.index(known("count", field, FIELDS))].sum())

    def of(self, stage: str, field: str) -> int:
        """Count of a field in one stage, over all layers."""
        row, column = known("stage", stage, STAGES), known("count", field, FIELDS)
        return int(self.table[STAGES.index(row), FIELDS.index(column)])

    def bytes_by_width(self, data: str, stage: str | None = None) -> dict[int, int]:
        """Bytes loaded of `data` by one stage or by all: {width of the load in bits: bytes}, without zeros."""
        fields = {8 * width: f"{known('kind of memory', data, DATA)}_{8 * width}bit" for width in WIDTHS}
        loaded = {bits: self.total(field) if stage is None else self.of(stage, field) for bits, field in fields.items()}
        return {bits: count for bits, count in loaded.items() if count}

    def loaded(self, data: str) -> int:
        """Bytes loaded of `data`, over all widths and stages."""
        return sum(self.bytes_by_width(data).values())

    def columns(self) -> dict[str, float]:
        """Totals, as tables of counts show them."""
        weights = self.bytes_by_width("weights")
        return {
            "grid barriers": self.total("grid_barriers"),
            "by value": self.total("by_value"),
            "block barriers": self.total("block_barriers"),
            "weights MB, 64-bit loads": weights.get(64, 0) / 1e6,
            "weights MB, 128-bit loads": weights.get(128, 0) / 1e6,
            "copied async MB": self.total("copied_async") / 1e6,
            "copied bulk MB": self.total("copied_bulk") / 1e6,
            "KV MB": self.loaded("kv") / 1e6,
            "activations MB": self.loaded("activations") / 1e6,
            "prefetched MB": self.total("prefetched") / 1e6,
            "shuffles": self.total("shuffles"),
            "atomics": self.total("atomics"),
        }

    def as_dict(self) -> dict[str, dict[str, int]]:
        """{stage: {field: count}} without the zeros, for records."""
        return {
            stage: {name: int(value) for name, value in zip(FIELDS, row, strict=True) if value}
            for stage, row in zip(STAGES, self.table, strict=True)
            if row.any()
        }

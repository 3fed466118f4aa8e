"""Counts of a CPU device: exchanges, atomics and bytes moved; exact, per stage, and equal on every machine."""

from collections.abc import Mapping
from dataclasses import dataclass

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
    """Counts of one or more steps. by_stage: {stage: {field: count}} without the zeros, as in records.

    The methods raise LabError for an unknown field, stage or kind of memory.
    """

    by_stage: Mapping[str, Mapping[str, int]]

    def total(self, field: str) -> int:
        """Summed over all stages."""
        known("count", field, FIELDS)
        return sum(counts.get(field, 0) for counts in self.by_stage.values())

    def of(self, stage: str, field: str) -> int:
        """Count of a field in one stage, over all layers."""
        row, column = known("stage", stage, STAGES), known("count", field, FIELDS)
        return self.by_stage.get(row, {}).get(column, 0)

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

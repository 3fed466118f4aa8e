"""What the host device counted: exact, per stage, and the same on every machine."""

from dataclasses import dataclass

import numpy as np

from common.model import STAGES

WIDTHS = (2, 4, 8, 16)  # bytes of one load
DATA = ("weights", "kv", "activations", "shared")  # global memory by what it holds, and shared memory
FIELDS = (
    "grid_barriers",  # per grid
    "block_barriers",  # summed over blocks
    "shuffles",  # summed over warps
    "atomics",
    "stored_activations",  # bytes, as all below
    "stored_kv",
    "prefetched",
    "copied_async",
    *(f"{data}_{8 * width}bit" for data in DATA for width in WIDTHS),
)  # in the order of `Counts` in common/host/machine.hpp


@dataclass(frozen=True)
class Counts:
    """Counts of one or more steps. `table` is uint64, [len(STAGES), len(FIELDS)]."""

    table: np.ndarray

    def total(self, field: str) -> int:
        """Summed over all stages."""
        return int(self.table[:, FIELDS.index(field)].sum())

    def of(self, stage: str, field: str) -> int:
        """Of one stage, over all layers."""
        return int(self.table[STAGES.index(stage), FIELDS.index(field)])

    def bytes_by_width(self, data: str, stage: str | None = None) -> dict[int, int]:
        """Bytes loaded of `data`, by the width of the load in bits; widths that do not occur are left out."""
        read = self.total if stage is None else lambda field: self.of(stage, field)
        found = {8 * width: read(f"{data}_{8 * width}bit") for width in WIDTHS}
        return {width: count for width, count in found.items() if count}

    def loaded(self, data: str) -> int:
        """Bytes loaded of `data`, over all widths and stages."""
        return sum(self.bytes_by_width(data).values())

    def as_dict(self) -> dict[str, dict[str, int]]:
        """{stage: {field: count}} without the zeros, for records."""
        return {
            stage: {name: int(value) for name, value in zip(FIELDS, row, strict=True) if value}
            for stage, row in zip(STAGES, self.table, strict=True)
            if row.any()
        }

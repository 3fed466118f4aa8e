"""Exact counts of one decode step: run on the host device once, then kept as a record.

Counts are the same on every machine. They depend on the code, the model, the knobs, the block size and the grid, and on
nothing else, so a record of the same code replaces a run. Those of Qwen3-0.6B are committed; to make them again:
python -m experiments experiment=counts results=experiments/results/counts.jsonl
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT
from common.compile.source import Source
from common.devices.counters import FIELDS, Counts
from common.errors import LabError
from common.model.layout import Layout
from common.model.stages import STAGES
from common.record.provenance import provenance
from common.record.store import Store

KIND = "count"
POSITION = 1  # the first that reads a cache; `experiments.prediction.model` scales to others
EVIDENCE = ROOT / "experiments" / "results"
COMMENT = re.compile(r"^#line.*$|//.*$", re.MULTILINE)


class Uncounted(LabError):
    """Counts are not known, and counting is not allowed here."""


class KnownCounts:
    """Counts from records, and from a run on the host device where there is no record.

    store: new counts are appended to it; the committed ones are read, too. kernels: the folder of compiled kernels.
    on_count: called with the name and the grid of a stack before it is counted; None: counting is not allowed.
    """

    def __init__(self, store: Store, kernels: Path, on_count: Callable[[str, int], None] | None) -> None:
        self._store, self._kernels, self._on_count = store, kernels, on_count
        self._known: dict[str, Counts] | None = None
        self._weights: tuple[int, Any] | None = None
        self._device: Any = None

    def count(self, source: Source, blocks: int) -> Counts:
        """Of one step of `source` at position 1 on a grid of `blocks`.

        Raises Uncounted, and LabError where there is no g++.
        """
        if self._known is None:
            stores = [*map(Store, sorted(EVIDENCE.glob("*.jsonl"))), self._store]
            rows = [row for store in stores for row in store.records() if row.get("kind") == KIND]
            self._known = {row["key"]: table(row["counts"]) for row in rows}
        name = key(source, blocks)
        if name not in self._known:
            if self._on_count is None:
                raise Uncounted(f"{source.name} has no counts", "make them with experiment=counts")
            self._on_count(source.name, blocks)
            counts = self._known[name] = self._run(source, blocks)
            self._store.append(
                {
                    "kind": KIND,
                    "key": name,
                    "variant": source.name,
                    "stack": source.stack,
                    "knobs": source.knobs,
                    "model": source.model,
                    "threads": source.threads,
                    "blocks": blocks,
                    "position": POSITION,
                    "source_sha": source.sha,
                    "counts": counts.as_dict(),
                    "provenance": provenance(),
                }
            )
        return self._known[name]

    def _run(self, source: Source, blocks: int) -> Counts:
        import torch

        from common.devices.host import HostDevice

        layout = Layout(source.model)
        if self._weights is None or self._weights[0] != layout.weights_size:  # counts do not depend on their values
            self._weights = (layout.weights_size, torch.zeros(layout.weights_size, dtype=torch.bfloat16))
            self._device = HostDevice(self._kernels)
        program = self._device.compile(source)
        with closing(self._device.session(program, layout, self._weights[1], blocks)) as session:
            session.reset([0] * (POSITION + 1), POSITION, torch.zeros(layout.cache.shape, dtype=torch.bfloat16))
            session.run()
            return session.counts()


def key(source: Source, blocks: int) -> str:
    """16 hex digits of what determines the counts: the code without comments (it has knobs and model), and the grid."""
    code = COMMENT.sub("", source.text).split()
    return hashlib.sha256(" ".join([*code, source.launch, str(blocks)]).encode()).hexdigest()[:16]


def table(counts: Mapping[str, Mapping[str, int]]) -> Counts:
    """Counts as `Counts.as_dict` wrote them; fields unknown to this version are left out."""
    values = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
    for stage, fields in counts.items():
        for field, value in fields.items():
            if field in FIELDS:
                values[STAGES.index(stage), FIELDS.index(field)] = value
    return Counts(values)

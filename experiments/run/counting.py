"""Exact counts of decode steps of one model, from records or made.

Counts are of one decode step on the PTX device, the same on every machine. They depend on the code, the model, the
knobs, the block size and the grid, and on nothing else, so a record of the same code replaces a run. Records of
Qwen3-0.6B are committed, in experiments/results/counts.jsonl: a line a stack, sorted. To make them again:
python -m experiments experiment=counts results=FILE, and the same with variant=ladder
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from common import ROOT
from common.compile.source import Source, build
from common.devices.counters import Counts
from common.lazy import torch
from common.model.shapes import Model
from common.record.provenance import EVIDENCE, provenance
from common.record.record import CountRecord
from common.record.store import Store
from common.stacks.catalog import read_catalog

KIND = "count"
POSITION = 1  # the first that reads a cache
GRID = 82  # SMs, as of the RTX 3090, for which most figures are published
SHORT = 64  # positions of a cache: no count depends on its size
COMMENT = re.compile(r"^#line.*$|//.*$", re.MULTILINE)


class Counting:
    """Counts of steps of `model` in blocks of `threads`.

    store: the run's own records, which with the committed ones give counts. cache: the folder of compiled kernels.
    on_count: called with the name of a stack and its grid before it is counted.
    """

    def __init__(
        self, model: Model, threads: int, store: Store, cache: Path, on_count: Callable[[str, int], None]
    ) -> None:
        self.model, self.threads = model, threads
        self._store, self._cache, self._on_count = store, cache, on_count
        self._weights: Any = None
        self._device: Any = None

    def source(self, variants: Sequence[str], knobs: Mapping[str, Mapping[str, int | str]]) -> Source:
        """The text to count. No count depends on the size of its short cache."""
        known, model = read_catalog().variants, replace(self.model, positions=min(self.model.positions, SHORT))
        return build([known[name] for name in variants], model, self.threads, knobs)

    def count(self, source: Source, multiprocessors: int = GRID) -> Counts:
        """Counts of one step of `source` at position 1, with as many blocks on each SM as it asks for.

        Raises LabError without NVRTC or g++.
        """
        blocks = multiprocessors * source.blocks_per_sm
        name = key(source, blocks)
        if name not in self._counts:
            self._on_count(source.name, blocks)
            counts = self._counts[name] = self._run(source, blocks)
            found = {"blocks": blocks, "position": POSITION, "counts": counts.by_stage}
            self._store.append({"kind": KIND, "key": name, **source.facts(), **found, "provenance": provenance()})
        return self._counts[name]

    @cached_property
    def _counts(self) -> dict[str, Counts]:
        """Counts of the committed records, then of the run's, by key; later ones are newer."""
        stores = [*map(Store, sorted((ROOT / EVIDENCE).glob("*.jsonl"))), self._store]
        return {each.key: Counts(each.counts) for store in stores for each in store.read(CountRecord)}

    def _run(self, source: Source, blocks: int) -> Counts:
        """Counts of the step at POSITION, with weights of zeros: no count depends on values."""
        from common.devices.ptx.device import PtxDevice

        device = self._device = self._device or PtxDevice(self._cache / "kernels")
        layout = source.layout
        if self._weights is None:
            self._weights = torch.zeros(layout.weights_size, dtype=torch.bfloat16)
        with closing(device.session(device.compile(source), self._weights, blocks)) as session:
            session.reset([0] * (POSITION + 1), POSITION, torch.zeros(layout.cache.stored, dtype=torch.bfloat16))
            return session.count()


def key(source: Source, blocks: int) -> str:
    """16 hex digits of what decides counts: the code with its knobs and model, without comments, and the grid."""
    code = COMMENT.sub("", source.text).split()
    return hashlib.sha256(" ".join([*code, source.launch, str(blocks)]).encode()).hexdigest()[:16]

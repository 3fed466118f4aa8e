"""Predictor for one model: counts, known or made, and the time that follows from them on a GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from common.compile.source import Source, build
from common.devices.counters import Counts
from common.errors.suggest import known
from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.prediction import gpus
from experiments.prediction.counting import EVIDENCE, KnownCounts
from experiments.prediction.declared import work_of
from experiments.prediction.model import Kernel
from experiments.prediction.prediction import Prediction, predict

GRID = 82  # blocks: one for each multiprocessor of the RTX 3090, for which most figures are published
SHORT = 64  # positions of a cache whose size no count depends on


@dataclass(frozen=True)
class Predictor:
    """Counts and times of decode steps of `model` in blocks of `threads`.

    known_counts: counts by source and grid, which may run the kernel on the host device. store: the run's own records;
    with the committed ones they replace assumed constants of a GPU by measured ones.
    """

    model: Model
    threads: int
    known_counts: KnownCounts
    store: Store
    _gpus: dict[str, gpus.GpuModel] = field(default_factory=dict, repr=False)
    _made: dict[Any, Prediction] = field(default_factory=dict, repr=False)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Committed records, then those of `store`; later ones are newer."""
        stores = [*map(Store, sorted(EVIDENCE.glob("*.jsonl"))), self.store]
        return [record for store in stores for record in store.records()]

    def source(self, variants: Sequence[str], knobs: Mapping[str, Mapping[str, int | str]]) -> Source:
        """The text to count and to predict with. No count depends on the size of its short cache.

        Raises LabError for a mistake in what one of the variants declares.
        """
        catalog, model = read_catalog(), replace(self.model, positions=min(self.model.positions, SHORT))
        for name in variants:
            work_of(name)  # a mistake in it costs no counting
        return build([catalog.variants[name] for name in variants], model, self.threads, knobs)

    def gpu(self, key: str) -> gpus.GpuModel:
        """The GPU of conf/gpu/<key>.yaml, with what records measured on it. Raises LabError for an unknown key."""
        if known("gpu", key, gpus.names()) not in self._gpus:
            self._gpus[key] = gpus.read(key, self.records)
        return self._gpus[key]

    def predict(
        self, variants: Sequence[str], knobs: Mapping[str, Any], gpu: gpus.GpuModel, position: int
    ) -> Prediction:
        """Time of a step of `variants` at `position` on `gpu`, one block on each SM unless a knob says otherwise.

        Raises Uncounted where it needs counts or loops that no record has, and may not make them.
        """
        values = tuple((name, *sorted(knobs.get(name, {}).items())) for name in variants)
        key = (values, gpu.key, gpu.measured, position)
        if key not in self._made:
            self._made[key] = predict(self.kernel(variants, knobs, gpu), gpu, position)
        return self._made[key]

    def kernel(self, variants: Sequence[str], knobs: Mapping[str, Any], gpu: gpus.GpuModel) -> Kernel:
        """The counted kernel of `variants` on the grid of `gpu`."""
        source = self.source(variants, knobs)
        counts, loops = self.counts(source, gpu), self.known_counts.loops(source, gpu.arch)
        blocks = gpu.multiprocessors if counts.total("prefetched") else GRID
        return Kernel(source, counts, blocks * source.blocks_per_sm, loops)

    def counts(self, source: Source, gpu: gpus.GpuModel) -> Counts:
        """Counts of `source` for a prediction on `gpu`.

        What a prediction uses depends on the grid only where blocks prefetch; other stacks are counted on one grid.
        """
        counts = self.known_counts.count(source, GRID * source.blocks_per_sm)
        if not counts.total("prefetched") or gpu.multiprocessors == GRID:
            return counts
        return self.known_counts.count(source, gpu.multiprocessors * source.blocks_per_sm)


def open_predictor(
    model: Model, threads: int, store: Store, cache: Path, on_count: Any = None, kept: Store | None = None
) -> Predictor:
    """A predictor whose compiled kernels lie in `cache`; on_count and kept as in KnownCounts."""
    return Predictor(model, threads, KnownCounts(store, cache, on_count, kept), store)

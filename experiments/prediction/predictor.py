"""Predictor for one model: exact counts and chains of SASS, from records or made, and the times that follow from them.

Counts are of one decode step on the PTX device, the same on every machine. They depend on the code, the model, the
knobs, the block size and the grid, and on nothing else, so a record of the same code replaces a run. Chains are walked
in the cubin of an arch, at a position. Records of Qwen3-0.6B are committed; to make them again:
python -m experiments experiment=counts results=experiments/results/counts.jsonl
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from common import ROOT
from common.compile.source import Source, build
from common.compile.target import number, settled, shared_bytes
from common.devices.counters import FIELDS, Counts
from common.errors import LabError, known
from common.model.shapes import Model
from common.model.stages import STAGES
from common.record.provenance import EVIDENCE, provenance
from common.record.record import ChainsRecord, CountRecord, Record
from common.record.store import Store
from common.stacks.catalog import read_catalog
from experiments.prediction import gpus
from experiments.prediction.declared import work_of
from experiments.prediction.model import Kernel
from experiments.prediction.prediction import Prediction, predict
from experiments.prediction.sass.chain import Chains, as_chains, as_row, chains

KIND, CHAINS = "count", "chains"
POSITION = 1  # the first that reads a cache; `experiments.prediction.model` scales to others
GRID = 82  # blocks: one for each multiprocessor of the RTX 3090, for which most figures are published
SHORT = 64  # positions of a cache: no count depends on its size
COMMENT = re.compile(r"^#line.*$|//.*$", re.MULTILINE)


class Uncounted(LabError):
    """Counts are not known, and counting is not allowed here."""


class Unsupported(LabError):
    """A stack needs a newer GPU than the requested one, or more shared memory, or what is not modelled."""


class Predictor:
    """Times of decode steps of `model` in blocks of `threads`.

    store: the run's own records, which with the committed ones give counts, chains, and measured constants of GPUs.
    cache: the folder of compiled kernels.
    on_count: called with the name of a stack and its grid or arch before it is counted or compiled; None: neither is
    allowed. kept: gets new counts and chains; None: `store` does.
    """

    def __init__(
        self,
        model: Model,
        threads: int,
        store: Store,
        cache: Path,
        on_count: Callable[[str, int | str], None] | None = None,
        kept: Store | None = None,
    ) -> None:
        self.model, self.threads = model, threads
        self._store, self._cache, self._on_count, self._kept = store, cache, on_count, kept
        self._gpus: dict[str, gpus.GpuModel] = {}
        self._predictions: dict[Any, Prediction] = {}
        self._weights: Any = None
        self._device: Any = None

    def predict(
        self, variants: Sequence[str], knobs: Mapping[str, Any], gpu: gpus.GpuModel, position: int
    ) -> Prediction:
        """Time of a step of `variants` at `position` on `gpu`, one block on each SM unless a knob says otherwise.

        Raises Uncounted where it needs counts or chains that no record has, and may not make them.
        """
        values = tuple((name, *sorted(knobs.get(name, {}).items())) for name in variants)
        key = (values, gpu.key, gpu.measured, position)
        if key not in self._predictions:
            self._predictions[key] = predict(self.kernel(variants, knobs, gpu, position), gpu, position)
        return self._predictions[key]

    def gpu(self, key: str) -> gpus.GpuModel:
        """The GPU of conf/gpu/<key>.yaml, with constants measured on it. Raises LabError for an unknown key."""
        if known("gpu", key, gpus.names()) not in self._gpus:
            self._gpus[key] = gpus.read(key, [record.row for record in self._records])
        return self._gpus[key]

    def source(self, variants: Sequence[str], knobs: Mapping[str, Mapping[str, int | str]]) -> Source:
        """The text to count and to predict with. No count depends on the size of its short cache.

        Raises LabError for a mistake in what one of the variants declares.
        """
        catalog, model = read_catalog(), replace(self.model, positions=min(self.model.positions, SHORT))
        for name in variants:
            work_of(name)  # a mistake in it costs no counting
        return build([catalog.variants[name] for name in variants], model, self.threads, knobs)

    def kernel(self, variants: Sequence[str], knobs: Mapping[str, Any], gpu: gpus.GpuModel, position: int) -> Kernel:
        """Source, counts and chains of `variants` on the grid of `gpu`.

        Raises Unsupported where it cannot run, and for launches whose cost nobody has measured.
        """
        source, arch = self.source(variants, knobs), number(gpu.arch)
        if source.launch == "pdl":
            raise Unsupported("nobody has measured what a launch with how=pdl costs", "time it on a GPU")
        counts, found = self.counts(source, gpu), self.chains(source, gpu, position)
        source.refuse_shared(found.shared_bytes, shared_bytes(arch), gpu.name, Unsupported)
        return Kernel(on_target(source, arch), counts, found)

    def counts(self, source: Source, gpu: gpus.GpuModel) -> Counts:
        """Counts of `source` for a prediction on `gpu`.

        What a prediction uses depends on the grid only where blocks prefetch; other stacks are counted on one grid.
        What loaders prefetch is declared.
        """
        counts = self.count(source)
        stages = {stage for name in source.stack for stage in work_of(name).get("loader_prefetches", ())}
        by_loaders = sum(counts.of(stage, "prefetched") for stage in stages)
        if counts.total("prefetched") == by_loaders or gpu.multiprocessors == GRID:
            return counts
        return self.count(source, gpu.multiprocessors)

    def count(self, source: Source, multiprocessors: int = GRID) -> Counts:
        """Counts of one step of `source` at position 1, with as many blocks on each SM as it asks for.

        Raises Uncounted, and LabError without NVRTC or g++.
        """
        blocks = multiprocessors * source.blocks_per_sm
        name = key(source, blocks)
        if name not in self._counts:
            self._begin(source, blocks)
            counts = self._counts[name] = self._run(source, blocks)
            self._keep(KIND, name, source, {"blocks": blocks, "position": POSITION, "counts": counts.as_dict()})
        return self._counts[name]

    def chains(self, source: Source, gpu: gpus.GpuModel, position: int) -> Chains:
        """Clocks of the stages of `source` on the grid of `gpu`, with latencies that may be another GPU's.

        Raises Uncounted, Unsupported, and LabError without NVRTC and nvdisasm.
        """
        blocks = gpu.multiprocessors * source.blocks_per_sm
        name = key(source, f"{gpu.arch} {blocks} {position}")
        if name not in self._chains:
            refuse_old(source, gpu)
            self._begin(source, gpu.arch)
            found = self._chains[name] = self.walk(source, gpu, position)
            about = {"arch": gpu.arch, "blocks": blocks, "position": position}
            self._keep(CHAINS, name, source, about | as_row(found))
        return self._chains[name]

    def walk(self, source: Source, gpu: gpus.GpuModel, position: int) -> Chains:
        """As `chains`, compiled and walked anew, with the latencies of `gpu`."""
        refuse_old(source, gpu)
        blocks = gpu.multiprocessors * source.blocks_per_sm
        return chains(source, gpu.arch, blocks, position, gpu.latency, self._cache / "cubins")

    @cached_property
    def _records(self) -> list[Record]:
        """Committed records, then the run's; later ones are newer."""
        stores = [*map(Store, sorted((ROOT / EVIDENCE).glob("*.jsonl"))), self._store, self._kept]
        return [record for store in stores if store for record in store.read(Record)]

    @cached_property
    def _counts(self) -> dict[str, Counts]:
        records = (record for record in self._records if isinstance(record, CountRecord))
        return {record.key: as_counts(record.counts) for record in records}

    @cached_property
    def _chains(self) -> dict[str, Chains]:
        records = (record for record in self._records if isinstance(record, ChainsRecord))
        return {each.key: as_chains(each.latency, each.chains, each.shared_bytes) for each in records}

    def _begin(self, source: Source, where: int | str) -> None:
        if self._on_count is None:
            raise Uncounted(f"{source.name} has no counts", "make them with experiment=counts")
        self._on_count(source.name, where)

    def _keep(self, kind: str, name: str, source: Source, found: Mapping[str, Any]) -> None:
        row = {"kind": kind, "key": name, **source.facts(), **found, "provenance": provenance()}
        (self._kept or self._store).append(row)

    def _run(self, source: Source, blocks: int) -> Counts:
        from common.devices.ptx.device import PtxDevice

        self._device = self._device or PtxDevice(self._cache / "kernels")
        with self.step(self._device, source, blocks) as session:
            return session.count()

    @contextmanager
    def step(self, device: Any, source: Source, blocks: int) -> Iterator[Any]:
        """A session of `source` on `device` that decodes the token at POSITION next, with weights of zeros.

        Counts do not depend on values.
        """
        import torch

        layout = source.layout
        if self._weights is None:
            self._weights = torch.zeros(layout.weights_size, dtype=torch.bfloat16)
        with closing(device.session(device.compile(source), self._weights, blocks)) as session:
            session.reset([0] * (POSITION + 1), POSITION, torch.zeros(layout.cache.stored, dtype=torch.bfloat16))
            yield session


def refuse_old(source: Source, gpu: gpus.GpuModel) -> None:
    """Raise Unsupported for a GPU that is too old for `source`."""
    source.refuse_target(number(gpu.arch), gpu.name, f"choose another GPU than {gpu.key}", Unsupported)


def on_target(source: Source, arch: int) -> Source:
    """`source` with the values of its "auto" knobs on `arch`, for its variants' declarations."""
    known = read_catalog().variants
    tokens = source.tokens_per_step
    own = {name: settled(known[name], values, source.model, arch, tokens) for name, values in source.knobs.items()}
    return replace(source, knobs=own)


def key(source: Source, where: int | str) -> str:
    """16 hex digits of the causes of counts and chains: the code without comments, and where it runs.

    The code has the knobs and the model in it.
    """
    code = COMMENT.sub("", source.text).split()
    return hashlib.sha256(" ".join([*code, source.launch, str(where)]).encode()).hexdigest()[:16]


def as_counts(counts: Mapping[str, Mapping[str, int]]) -> Counts:
    """Counts as `Counts.as_dict` wrote them; fields unknown to this version are left out."""
    values = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
    for stage, fields in counts.items():
        for field, value in fields.items():
            if field in FIELDS:
                values[STAGES.index(stage), FIELDS.index(field)] = value
    return Counts(values)

"""Inputs of a prediction, made once and kept as a record: exact counts, and loops of the SASS.

Counts are of one decode step on the host device, the same on every machine. They depend on the code, the model, the
knobs, the block size and the grid, and on nothing else, so a record of the same code replaces a run. Loops are read
from the cubin of an arch. Those of Qwen3-0.6B are committed; to make them again:
python -m experiments experiment=counts results=experiments/results/counts.jsonl
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property
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
from experiments.prediction.loops import Loop, stage_loops

KIND, LOOPS = "count", "loops"
POSITION = 1  # the first that reads a cache; `experiments.prediction.model` scales to others
EVIDENCE = ROOT / "experiments" / "results"
COMMENT = re.compile(r"^#line.*$|//.*$", re.MULTILINE)


class Uncounted(LabError):
    """Counts are not known, and counting is not allowed here."""


class Unsupported(LabError):
    """A variant needs a newer GPU than the one that is asked about."""


class KnownCounts:
    """Counts and loops from records; where there is none, from a run on the host device and from a compilation.

    store: what is new is appended to it, or to `kept` if that is given; the committed records are read, too.
    cache: the folder of compiled kernels.
    on_count: called with the name of a stack and its grid or arch before that; None: neither is allowed.
    """

    def __init__(
        self,
        store: Store,
        cache: Path,
        on_count: Callable[[str, int | str], None] | None,
        kept: Store | None = None,
    ) -> None:
        self._stores, self._cache, self._on_count = (store, kept) if kept else (store,), cache, on_count
        self._weights: tuple[int, Any] | None = None
        self._device: Any = None

    def count(self, source: Source, blocks: int) -> Counts:
        """Counts of one step of `source` at position 1 on a grid of `blocks`.

        Raises Uncounted, and LabError where there is no g++.
        """
        name = key(source, blocks)
        if name not in self._counts:
            self._begin(source, blocks)
            counts = self._counts[name] = self._run(source, blocks)
            self._keep(KIND, name, source, {"blocks": blocks, "position": POSITION, "counts": counts.as_dict()})
        return self._counts[name]

    def loops(self, source: Source, arch: str) -> Mapping[str, Loop]:
        """By stage, of `source` compiled for `arch`.

        Raises Uncounted, Unsupported, and LabError without NVRTC and nvdisasm.
        """
        if int(arch.removeprefix("sm_")) < source.min_arch:
            raise Unsupported(f"{source.name} needs sm_{source.min_arch}", f"choose another GPU than one of {arch}")
        name = key(source, arch)
        if name not in self._loops:
            self._begin(source, arch)
            found = self._loops[name] = stage_loops(source, arch, self._cache / "cubins")
            self._keep(
                LOOPS, name, source, {"arch": arch, "loops": {stage: vars(loop) for stage, loop in found.items()}}
            )
        return self._loops[name]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        stores = [*map(Store, sorted(EVIDENCE.glob("*.jsonl"))), *self._stores]
        return [row for store in stores for row in store.records() if row.get("kind") in (KIND, LOOPS)]

    @cached_property
    def _counts(self) -> dict[str, Counts]:
        return {row["key"]: table(row["counts"]) for row in self._records if row["kind"] == KIND}

    @cached_property
    def _loops(self) -> dict[str, Mapping[str, Loop]]:
        rows = (row for row in self._records if row["kind"] == LOOPS)
        return {row["key"]: {stage: Loop(**loop) for stage, loop in row["loops"].items()} for row in rows}

    def _begin(self, source: Source, where: int | str) -> None:
        if self._on_count is None:
            raise Uncounted(f"{source.name} has no counts", "make them with experiment=counts")
        self._on_count(source.name, where)

    def _keep(self, kind: str, name: str, source: Source, found: Mapping[str, Any]) -> None:
        self._stores[-1].append({"kind": kind, "key": name, **source.facts(), **found, "provenance": provenance()})

    def _run(self, source: Source, blocks: int) -> Counts:
        import torch

        from common.devices.host.device import HostDevice

        layout = Layout(source.model)
        if self._weights is None or self._weights[0] != layout.weights_size:  # counts do not depend on their values
            self._weights = (layout.weights_size, torch.zeros(layout.weights_size, dtype=torch.bfloat16))
            self._device = HostDevice(self._cache / "kernels")
        program = self._device.compile(source)
        with closing(self._device.session(program, self._weights[1], blocks)) as session:
            session.reset([0] * (POSITION + 1), POSITION, torch.zeros(layout.cache.shape, dtype=torch.bfloat16))
            session.run()
            return session.counts()


def key(source: Source, where: int | str) -> str:
    """16 hex digits of what determines counts and loops: the code without comments, and the grid or the arch.

    The code has the knobs and the model in it.
    """
    code = COMMENT.sub("", source.text).split()
    return hashlib.sha256(" ".join([*code, source.launch, str(where)]).encode()).hexdigest()[:16]


def table(counts: Mapping[str, Mapping[str, int]]) -> Counts:
    """Counts as `Counts.as_dict` wrote them; fields unknown to this version are left out."""
    values = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
    for stage, fields in counts.items():
        for field, value in fields.items():
            if field in FIELDS:
                values[STAGES.index(stage), FIELDS.index(field)] = value
    return Counts(values)

"""Evidence: the records of all machines, the newest counts and run of each stack."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from common.devices.counters import DATA, WIDTHS
from common.errors import LabError
from common.record.record import model_fields
from common.record.store import Store
from common.stacks.catalog import Catalog
from common.stacks.stack import Stack, choose_stacks
from common.stacks.variant import NamedStack, Variant
from common.validate.verdict import PASSED
from experiments.run.counting import KIND
from experiments.tables.row import totals as summed

Record = Mapping[str, Any]
Pair = tuple[Record | None, Record | None]  # a stack and its parent
FIXED = {("by_value", "eager"): 64}  # knobs of earlier records that are gone, and their defaults
THREADS = 256  # in a block, unless a run says otherwise


@dataclass(frozen=True)
class Evidence:
    """Records of all machines, oldest first, the catalog they are about, and the name of each record's file by id."""

    catalog: Catalog
    records: tuple[Record, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def counted(self, name: str) -> Pair:
        """The newest counts of a variant or named stack and of its parent: of the largest model, on one grid.

        Without such a parent, the newest and None.
        """
        stack, parent = self.stack_of(name)
        own = self.of_stack(name, stack, "counts")
        own.sort(key=lambda row: (_size(row), row["time"]), reverse=True)
        for row in own:
            for base in reversed(self.of_stack(name, parent, "counts")):
                if all(row[key] == base[key] for key in ("model", "blocks")):
                    return row, base
        return (own[0], None) if own else (None, None)

    def of_stack(self, name: str, stack: Sequence[str], field: str) -> list[Record]:
        """Records of `stack` that PASSED and have `field`, with the knobs that `name` has by default; oldest first."""
        knobs = self._stacks[name].knobs
        return [
            row
            for row in self.records
            if row.get("kind") in ("run", KIND)
            and row.get("status", PASSED) == PASSED  # counts have none
            and row.get(field)
            and tuple(row["stack"]) == tuple(stack)
            and all(_knobs(row, variant) == knobs.get(variant, {}) for variant in stack)
        ]

    @cached_property
    def _stacks(self) -> Mapping[str, Stack]:
        """Each name as a stack with default knobs."""
        return {name: choose_stacks(self.catalog, name, None, {}, THREADS)[0] for name in self.names}

    def timed(self, name: str) -> list[Record]:
        """The newest run with GPU time for each GPU and model, `comparable` with other names' runs."""
        return [runs[name] for runs in self._timed if name in runs]

    @cached_property
    def _timed(self) -> list[Mapping[str, Record]]:
        runs: dict[Any, dict[str, list[Record]]] = {}
        for name in self.names:
            stack, parent = self.stack_of(name)
            for row in self.of_stack(name, stack, "latencies"):
                if tuple(row["parent"]) != tuple(parent):
                    continue  # against another stack
                runs.setdefault((row["device"].get("gpu"), row["model"]["name"]), {}).setdefault(name, []).append(row)
        return [comparable(of_place) for of_place in runs.values()]

    def stack_of(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(stack, parent) of a variant or a named stack, innermost first."""
        if name not in self._stacks:
            raise LabError(f"no variant {name}", f"known: {', '.join(self.names)}")
        return self._stacks[name].variants, self._stacks[name].parent

    def entry(self, name: str) -> Variant | NamedStack:
        """Catalog entry of a name."""
        return self.catalog.variants.get(name) or self.catalog.stacks[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All variants, then all named stacks."""
        return (*self.catalog.variants, *self.catalog.stacks)


def comparable(runs: Mapping[str, Sequence[Record]]) -> Mapping[str, Record]:
    """The newest run of each name (its runs are oldest first), all with one cache, threads, positions and options.

    Of all such conditions those with most names, then with most positions, then with the newest run.
    """
    alike: dict[str, dict[str, Record]] = {}
    for name, own in runs.items():
        for row in own:
            positions = [timed["position"] for timed in row["latencies"]]
            asked = {**(row.get("asked") or {}), "archs": None}  # inspected, not timed
            conditions = json.dumps([model_fields(row), row["threads"], positions, asked], sort_keys=True)
            alike.setdefault(conditions, {})[name] = row

    def better(found: Mapping[str, Record]) -> tuple[Any, ...]:
        latest = max(found.values(), key=lambda row: row["time"])
        return len(found), len(latest["latencies"]), latest["time"]

    return max(alike.values(), key=better, default={})


def _size(row: Record) -> int:
    return row["model"]["hidden"] * row["model"]["layers"]


def read(files: Iterable[Path], catalog: Catalog) -> Evidence:
    """The records of `files`, each once, oldest first."""
    found = [(row, file.name) for file in files for row in Store(file).records()]
    rows = {row["id"]: row for row, _ in found}.values()
    names = {row["id"]: name for row, name in found}
    return Evidence(catalog, tuple(sorted(rows, key=lambda row: (row["time"], row["id"]))), names)


def totals(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Counts of all stages together, and `load_instructions`: loads of all widths, but those from shared memory."""
    sums = summed(counts)
    widths = [(data, width) for data in DATA if data != "shared" for width in WIDTHS]
    return {**sums, "load_instructions": sum(sums.get(f"{data}_{8 * width}bit", 0) // width for data, width in widths)}


def _knobs(row: Record, variant: str) -> Mapping[str, Any]:
    """A variant's knobs in a record, without one that is gone and had its default."""
    given = row["knobs"].get(variant, {})
    return {name: value for name, value in given.items() if FIXED.get((variant, name)) != value}

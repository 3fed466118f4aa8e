"""Evidence: the records of all machines, the newest run of each stack, the newest answer of each experiment."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from common.compile.sass import BUILD
from common.devices.counters import DATA, WIDTHS
from common.errors import LabError
from common.record.record import model_fields
from common.record.store import Store
from common.stacks.catalog import BASELINE, Catalog
from common.stacks.stack import Stack, choose_stacks
from common.stacks.variant import NamedStack, Variant
from experiments.run.counting import KIND
from experiments.tables.row import label_of
from experiments.tables.row import totals as summed

Record = Mapping[str, Any]
Pair = tuple[Record | None, Record | None]  # of a stack and of its parent
THREADS = 256  # of a block, unless a run says otherwise
BASES = ("estimated", "counted", "measured")  # a later one answers better
NOTHING = "no record yet"


@dataclass(frozen=True)
class Evidence:
    """Records of all machines, oldest first, and the catalog they are about."""

    catalog: Catalog
    records: tuple[Record, ...]

    @cached_property
    def runs(self) -> tuple[Record, ...]:
        return tuple(row for row in self.records if row.get("kind") == "run")

    def counted(self, name: str) -> Pair:
        """Counts of a variant or named stack and of its parent: of the largest model, on one grid, the newest."""
        return self._pair(name, "counts", ("model", "blocks"))

    def built(self, name: str) -> Pair:
        """Resources and instructions, by arch, of a variant or named stack and of its parent.

        Of the model and block size that `counted` counts, so that the two may stand in one table: registers depend on
        the shape, and a small model says nothing of a large one. Without counts, of the largest model.
        """
        counted, _ = self.counted(name)
        return self._pair(name, "resources", ("model", "threads"), counted)

    def counts_of(self, name: str, stack: Sequence[str]) -> Record | None:
        """The newest counts of any `stack`, with the knobs of `name`, on the model and grid of the baseline's."""
        base, _ = self.counted(BASELINE)
        for row in reversed(self.of_stack(name, stack, "counts")):
            if base and (_shape(row), row["blocks"]) == (_shape(base), base["blocks"]):
                return row
        return None

    def validated(self, name: str) -> Record | None:
        """The newest run against its own parent."""
        return next(reversed(self._runs(name, "status")), None)

    def _pair(self, name: str, field: str, alike: Sequence[str], beside: Record | None = None) -> Pair:
        """The newest two records that have `field` and agree in `alike`; without such a parent, the newest and None.

        beside: the record to match in shape and block size.
        """
        stack, parent = self.stack_of(name)
        own = [row for row in self.of_stack(name, stack, field) if beside is None or _shape(row) == _shape(beside)]
        own.sort(key=lambda row: (_size(row), row["time"]), reverse=True)
        for row in own:
            for base in reversed(self.of_stack(name, parent, field)):
                if all(row[key] == base[key] for key in alike):
                    return row, base
        return (own[0], None) if own else (None, None)

    def of_stack(self, name: str, stack: Sequence[str], field: str) -> list[Record]:
        """Records of `stack` that have `field`, with the knobs that `name` has by default; oldest first."""
        knobs = self._stacks[name].knobs
        return [
            row
            for row in self.records
            if row.get("kind") in ("run", KIND, BUILD)
            and row.get(field)
            and tuple(row["stack"]) == tuple(stack)
            and all(row["knobs"].get(variant, {}) == knobs.get(variant, {}) for variant in stack)
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
            for row in self._runs(name, "latencies"):
                runs.setdefault((row["device"].get("gpu"), row["model"]["name"]), {}).setdefault(name, []).append(row)
        return [comparable(of_place) for of_place in runs.values()]

    def _runs(self, name: str, field: str) -> list[Record]:
        """Runs of a name that have `field`: of its stack against its parent, not against another stack."""
        stack, parent = self.stack_of(name)
        return [row for row in self.of_stack(name, stack, field) if tuple(row.get("parent", ())) == tuple(parent)]

    def stack_of(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(stack, parent) of a variant or a named stack, innermost first."""
        if name not in self._stacks:
            raise LabError(f"no variant {name}", f"known: {', '.join(self.names)}")
        return self._stacks[name].variants, self._stacks[name].parent

    def plain(self, label: Any) -> Any:
        """The name alone for the label of a row in which every knob has its default; any other cell as it is."""
        return self._labels.get(label, label)

    @cached_property
    def _labels(self) -> Mapping[str, str]:
        return {label_of(stack): name for name, stack in self._stacks.items()}

    def entry(self, name: str) -> Variant | NamedStack:
        """Catalog entry of a name."""
        return self.catalog.variants.get(name) or self.catalog.stacks[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All variants, then all named stacks."""
        return (*self.catalog.variants, *self.catalog.stacks)

    @cached_property
    def recorded(self) -> tuple[str, ...]:
        """Names with a record of a run or of counts."""
        return tuple(name for name in self.names if self.validated(name) or self.counted(name)[0])

    def result(self, experiment: str) -> Record | None:
        """The newest record of an experiment; a measured one goes before a counted or an estimated one.

        Records with non-default knobs are used only if there is no other on the same basis.
        """

        def better(row: Record) -> tuple[Any, ...]:
            return BASES.index(row.get("basis", BASES[0])), not row.get("knobs"), row["time"]

        found = (row for row in self.records if row.get("kind") == experiment and "table" in row)
        return max(found, key=better, default=None)

    @property
    def experiments(self) -> tuple[str, ...]:
        """Kinds of records that have a table, by name."""
        return tuple(sorted({row["kind"] for row in self.records if "table" in row}))


def model_of(row: Record) -> str | None:
    """The name of the model that a record is about."""
    model = row.get("model")
    return model.get("name") if isinstance(model, dict) else model


def comparable(runs: Mapping[str, Sequence[Record]]) -> Mapping[str, Record]:
    """The newest run of each name (its runs are oldest first) among those with one cache, positions and options.

    Times of other conditions may not stand in one table. Most names have a run under those chosen; of several such, the
    one with most positions has, then the newest.
    """
    alike: dict[str, dict[str, Record]] = {}
    for name, own in runs.items():
        for row in own:
            positions = [timed["position"] for timed in row["latencies"]]
            timing = (row.get("asked") or {}).get("timing")
            conditions = json.dumps([model_fields(row), row["threads"], positions, timing], sort_keys=True)
            alike.setdefault(conditions, {})[name] = row

    def better(found: Mapping[str, Record]) -> tuple[Any, ...]:
        latest = max(found.values(), key=lambda row: row["time"])
        return len(found), len(latest["latencies"]), latest["time"]

    return max(alike.values(), key=better, default={})


def _shape(row: Record) -> tuple[Mapping[str, Any], int]:
    """Conditions of counts and kernels, without the size of the cache: counts are made with a short one."""
    return {**model_fields(row), "positions": None}, row["threads"]


def _size(row: Record) -> int:
    return row["model"]["hidden"] * row["model"]["layers"]


def read(files: Iterable[Path], catalog: Catalog) -> Evidence:
    """The records of `files`, each once, oldest first. Raises LabError for a file that is not there."""
    rows: dict[str, Record] = {}
    for file in files:
        if not file.exists():
            raise LabError(f"{file} is not there", "name a file of records, as results=FILE of a run wrote it")
        rows |= {row["id"]: row for row in Store(file).records()}
    return Evidence(catalog, tuple(sorted(rows.values(), key=lambda row: (row["time"], row["id"]))))


def totals(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Counts of all stages together, with three sums: `load_instructions`, `weights` and `activations` bytes."""
    sums = summed(counts)
    by_data = {
        data: [(width, sums.get(f"{data}_{8 * width}bit", 0)) for width in WIDTHS] for data in DATA if data != "shared"
    }
    return {
        **sums,
        "load_instructions": sum(size // width for widths in by_data.values() for width, size in widths),
        "weights": sum(size for _, size in by_data["weights"]),
        "activations": sum(size for _, size in by_data["activations"]),
    }

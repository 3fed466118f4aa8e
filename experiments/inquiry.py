"""What every experiment works with: the configuration, its options, stacks, counts, predictions and measurements."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from common.catalog import read_catalog
from common.config import RunConfig
from common.counters import Counts
from common.errors import LabError
from common.model import Model
from common.records import Store
from common.section import Section
from common.source import Source, build
from common.stack import Stack, check_stack, choose_stacks
from experiments.prediction import gpus
from experiments.prediction.counting import EVIDENCE, Ledger
from experiments.prediction.model import Prediction, predict
from experiments.progress import Progress

if TYPE_CHECKING:
    from experiments.run import Lab

GRID = 82  # blocks: those of the RTX 3090, of which most is published
SHORT = 64  # positions of a cache that nobody fills
TIME = "GPU time; the figures here are predictions from exact counts"


@dataclass(frozen=True)
class Inquiry:
    """One experiment under way. may_count: whether counts that are not known may be made, by running the kernel."""

    config: RunConfig
    show: Progress
    may_count: bool = True

    @property
    def options(self) -> Section:
        return self.config.options

    @property
    def on_gpu(self) -> bool:
        return self.config.device.name == "cuda"

    @property
    def model(self) -> Model:
        return self.config.model or self.lab.model

    @cached_property
    def left_out(self) -> list[str]:
        """A line for each thing that was measured and enters no table, with the reason."""
        return []

    @cached_property
    def store(self) -> Store:
        return Store(self.config.results)

    @cached_property
    def lab(self) -> "Lab":
        """Device and weights, loaded when they are first needed."""
        from experiments.run import prepare

        return prepare(self.config, self.show)

    @cached_property
    def ledger(self) -> Ledger:
        folder = self.config.cache / "kernels"

        def tell(name: str, blocks: int) -> None:
            self.show.begin(f"count {name} on {blocks} blocks")

        return Ledger(self.store, folder, tell if self.may_count else None)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Committed records, then those of `results`; later ones are newer."""
        stores = [*map(Store, sorted(EVIDENCE.glob("*.jsonl"))), self.store]
        return [row for store in stores for row in store.rows()]

    def stack(self, name: str, knobs: Mapping[str, Any] | None = None) -> Stack:
        """The variant or named stack `name`, with values for knobs of it."""
        return choose_stacks(read_catalog(), name, None, knobs or {}, self.config.threads)[0]

    def composed(self, names: Sequence[str], parent: Sequence[str], like: Stack | None = None) -> Stack:
        """The stack of `names` compared with `parent`; knob values as in `like`, else the defaults."""
        listed = list(names) or ["baseline"]
        stack = choose_stacks(read_catalog(), "", listed, {}, self.config.threads)[0]
        knobs = stack.knobs | {name: like.knobs[name] for name in stack.knobs if like and name in like.knobs}
        return replace(stack, parent=check_stack(parent, read_catalog()), knobs=knobs)

    def source(self, variants: Iterable[str], knobs: Mapping[str, Mapping[str, int | str]]) -> Source:
        """The text to count and to predict with. Its cache is short: no count depends on the size of the cache."""
        known, model = read_catalog().variants, replace(self.model, positions=min(self.model.positions, SHORT))
        return build([known[name] for name in variants], model, self.config.threads, knobs)

    def gpu(self, key: str) -> gpus.GpuModel:
        return gpus.read(key, self.records)

    def predict(
        self, variants: Sequence[str], knobs: Mapping[str, Any], gpu: gpus.GpuModel, position: int
    ) -> Prediction:
        """Time of a step of `variants` at `position` on `gpu`, one block on each SM unless a knob says otherwise."""
        source = self.source(variants, knobs)
        return predict(source, self.counts(source, gpu), gpu, position, gpu.multiprocessors * source.blocks_per_sm)

    def counts(self, source: Source, gpu: gpus.GpuModel) -> Counts:
        """Counts of `source` for a prediction on `gpu`.

        What a prediction takes of them depends on the grid only where blocks prefetch; all else is counted on one grid.
        """
        counts = self.ledger.count(source, GRID * source.blocks_per_sm)
        if not counts.total("prefetched") or gpu.multiprocessors == GRID:
            return counts
        return self.ledger.count(source, gpu.multiprocessors * source.blocks_per_sm)

    def measure(self, stacks: Sequence[Stack]) -> list[dict[str, Any]]:
        """The record of each stack, timed beside its parent on the GPU.

        What did not pass has no latencies, and one that is implausible is taken out: `left_out` says which and why.
        """
        return [self._plausible(record) for record in self.raced(stacks)]

    def raced(self, stacks: Sequence[Stack]) -> list[dict[str, Any]]:
        """Validate and time each stack, each in a process of its own. Raises LabError where timing is forbidden."""
        from experiments.sweep import prepare

        if self.config.timing is None:
            raise LabError("this experiment measures, and timing=none forbids it", "leave timing=none out")
        with prepare(replace(self.config, stacks=tuple(stacks)), self.show) as sweep:
            sweep.run()
        return [sweep.records[index] for index in range(len(stacks))]

    def _plausible(self, record: dict[str, Any]) -> dict[str, Any]:
        if record["status"] != "PASSED":
            self.left_out.append(f"Left out: {record['variant']}, {record['status']}: {record['reason']}")
        kept = []
        for timed in record["latencies"]:
            if timed["verdict"] == "IMPLAUSIBLE":
                place = f"{record['variant']} at position {timed['position']}"
                ceiling = f"{100 * timed['of_ceiling']:.0f} % of the read ceiling"
                self.left_out.append(f"Left out: {place}, IMPLAUSIBLE: {ceiling}")
            else:
                kept.append(timed)
        return record | {"latencies": kept}


def microseconds(record: Mapping[str, Any], position: int) -> float:
    """Median latency of a measured record at `position`; NaN where it has none."""
    found = (timed for timed in record["latencies"] if timed["position"] == position)
    return next((1e6 * timed["seconds"]["median"] for timed in found), float("nan"))

"""One experiment: its configuration, options, stacks, predictions and measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from common.config.run_config import RunConfig
from common.config.section import Section
from common.errors import LabError
from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, check_stack
from experiments.prediction.predictor import Predictor
from experiments.run.setup import Setup
from experiments.show.progress import Progress

TIME = "GPU time; the figures here are predictions from exact counts"


@dataclass(frozen=True)
class Experiment:
    """One experiment under way: its configuration, and what it needs of the lab, made when it is first used."""

    config: RunConfig
    show: Progress

    @property
    def options(self) -> Section:
        return self.config.options

    @property
    def on_gpu(self) -> bool:
        return self.config.device.name == "cuda"

    @property
    def model(self) -> Model:
        return self.lab.model

    @property
    def positions(self) -> tuple[int, ...]:
        """Those of `options.positions` that the KV cache holds. Raises LabError when it holds none of them."""
        asked = self.options.wholes("positions", low=0)
        if min(asked) >= self.model.positions:
            cause = f"options.positions: none of {list(asked)} is in 0..{self.model.positions - 1}"
            raise LabError(f"{cause}, the positions of the KV cache", f"give model.positions={min(asked) + 1}")
        return tuple(position for position in asked if position < self.model.positions)

    @cached_property
    def left_out(self) -> list[str]:
        """A line for each thing that was measured and enters no table, with the reason."""
        return []

    @property
    def store(self) -> Store:
        return self.lab.store

    @cached_property
    def lab(self) -> Setup:
        """Device, weights and predictor, made when they are first needed."""
        return Setup(self.config, self.show)

    @property
    def predictor(self) -> Predictor:
        return self.lab.predictor

    def stack(self, name: str, knobs: Mapping[str, Any] | None = None) -> Stack:
        """The variant or named stack `name`, with values for knobs of it."""
        return self.lab.choose(name, knobs or {})[0]

    def composed(self, names: Sequence[str], parent: Sequence[str], like: Stack | None = None) -> Stack:
        """The stack of `names` compared with `parent`; knob values as in `like`, else the defaults."""
        (stack,) = self.lab.choose(list(names) or ["baseline"], {})
        knobs = dict(stack.knobs) | {name: like.knobs[name] for name in stack.knobs if like and name in like.knobs}
        return replace(stack, parent=check_stack(parent, read_catalog()), knobs=knobs)

    def measure(self, stacks: Sequence[Stack]) -> list[dict[str, Any]]:
        """The record of each stack, timed beside its parent on the GPU.

        What did not pass has no latencies, and one that is implausible is taken out: `left_out` says which and why.
        """
        return [self._plausible(record) for record in self.measured_records(stacks)]

    def measured_records(self, stacks: Sequence[Stack]) -> list[dict[str, Any]]:
        """Validate and time each stack, each in a process of its own. Raises LabError where timing is forbidden."""
        from experiments.run.sweep import open_sweep

        if self.config.timing is None:
            raise LabError("this experiment measures, and timing=none forbids it", "leave timing=none out")
        with open_sweep(replace(self.config, stacks=tuple(stacks)), self.show) as sweep:
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

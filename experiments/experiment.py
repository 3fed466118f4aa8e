"""One experiment: its configuration, options, stacks, predictions and measurements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from common.cache.files import again
from common.config import budget
from common.config.run_config import RunConfig
from common.config.section import Section
from common.errors import LabError, Unfinished
from common.errors.machine import MachineError, system_errors
from common.model.shapes import Model
from common.record.code import code_sha
from common.record.json_values import to_json
from common.record.provenance import provenance
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import Stack, check_stack
from experiments.prediction.predictor import Predictor
from experiments.prediction.setup import PredictingSetup
from experiments.tables.progress import Progress
from experiments.tables.row import label

ROW = "row"  # kind of the record of one row of an experiment
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
        """The positions in `options.positions` that the KV cache holds. Raises LabError when it holds none of them."""
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
    def lab(self) -> PredictingSetup:
        """Device, weights and predictor, made when they are first needed."""
        return PredictingSetup(self.config, self.show)

    @property
    def predictor(self) -> Predictor:
        return self.lab.predictor

    def stack(self, name: str, knobs: Mapping[str, Any] | None = None) -> Stack:
        """The variant or named stack `name`, with those knobs of the command line that it has, and with `knobs`."""
        usual = self.lab.choose(name, {})[0]
        return self.lab.choose(name, self.taken(usual.variants) | dict(knobs or {}))[0]

    def stacks(self, names: Sequence[str], *more: Stack) -> list[Stack]:
        """`stack` of each of `names`, else of all variants and named stacks; then `more`.

        Raises LabError for a knob of the command line that none of them has: it would change nothing.
        """
        catalog = read_catalog()
        chosen = [*map(self.stack, names or (*catalog.variants, *catalog.stacks)), *more]
        self.check_knobs(chosen)
        return chosen

    def check_knobs(self, stacks: Sequence[Stack]) -> None:
        """Raise LabError for a knob of the command line that none of `stacks` has."""
        taken = self.taken([name for stack in stacks for name in stack.variants])
        for knob in self.config.knobs:
            if knob not in taken:
                asked = ", ".join(stack.name for stack in stacks) or "it"
                takers = ", ".join(read_catalog().takers(knob))
                cause = f"{knob}= has no effect on experiment={self.config.task}: {asked} has no such knob"
                raise LabError(cause, f"leave it out; variants that take it: {takers}")

    def composed(self, names: Sequence[str], parent: Sequence[str], like: Stack | None = None) -> Stack:
        """The stack of `names` compared with `parent`; knobs as in `like`, else of the command line or the defaults."""
        (stack,) = self.lab.choose(list(names) or ["baseline"], self.taken(names))
        knobs = dict(stack.knobs) | {name: like.knobs[name] for name in stack.knobs if like and name in like.knobs}
        return replace(stack, parent=check_stack(parent, read_catalog()), knobs=knobs)

    def taken(self, variants: Sequence[str]) -> dict[str, Any]:
        """The knobs of the command line that one of `variants` has."""
        known = read_catalog().variants
        own = {knob.name for name in variants if name in known for knob in known[name].knobs}
        return {knob: value for knob, value in self.config.knobs.items() if knob in own}

    def attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of `work`; None where it fails: that costs the row `name` alone, and `left_out` says why.

        Raises Unfinished, before the row begins, where it would not end within the budget; MachineError.
        """
        if not self.config.budget.holds(self._took):
            cause = f"the rows from {name} on are left, at about {self.config.budget.estimate(self._took):.0f} s each"
            raise Unfinished(f"experiment={self.config.task}: {cause}", "the same command goes on there")
        began = budget.clock()
        try:
            with system_errors(name):
                return again(work)
        except (Unfinished, MachineError):
            raise
        except LabError as error:
            self.left_out.append(f"Left out: {name}: {error}")
        except Exception as error:  # of a kernel, a library or another engine
            self.left_out.append(f"Left out: {name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        finally:
            self._took.append(budget.clock() - began)
        return None

    def row(self, name: str, work: Callable[[], Mapping[str, Any]], **about: Any) -> Mapping[str, Any] | None:
        """`attempt`, kept as a record at once: an interruption loses no finished row, and resuming takes it from there.

        about: what decides the row beside the configuration and the code, such as the sha of a kernel's source.
        """
        wanted = to_json({**self._about, "row": name, "about": about})
        if self.config.resume:
            for known in reversed(self._rows):
                if known["asked"] == wanted:
                    self.left_out.extend([known["reason"]] if known["reason"] else [])
                    return known["found"]
        failures = len(self.left_out)
        found = self.attempt(name, work)
        reason = "".join(self.left_out[failures:])
        self.store.append(
            {"kind": ROW, "asked": wanted, "found": found, "reason": reason, "took": self._took[-1]}
            | {"provenance": provenance()}
        )
        if self._lost():
            raise Unfinished(
                f"after {name} this process cannot use the GPU any more", "the same command goes on after it"
            )
        return found

    def _lost(self) -> bool:
        """True if a row has damaged this process's context on the GPU: then every later call fails."""
        if not self.on_gpu:
            return False
        from cupy.cuda import runtime

        try:
            runtime.deviceSynchronize()
        except runtime.CUDARuntimeError:
            return True
        return False

    @cached_property
    def _about(self) -> dict[str, Any]:
        config = self.config
        names = ("task", "device", "seed", "threads", "blocks")
        return {name: getattr(config, name) for name in names} | {
            "options": config.options.values,
            "model": self.model,
            "weights": self.lab.packed.sha,
            "code": code_sha(),
        }

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """The rows of this experiment that the store has."""
        rows = [row for row in self.store.records() if row.get("kind") == ROW]
        return [row for row in rows if row["asked"]["task"] == self.config.task]

    @cached_property
    def _took(self) -> list[float]:
        """Seconds of rows of this experiment on this device, the newest last."""
        device = to_json(self.config.device)
        return [row["took"] for row in self._rows if row["asked"]["device"] == device]

    def measure(self, stacks: Sequence[Stack], position: int | None = None) -> list[dict[str, Any]]:
        """The record of each stack, timed beside its parent on the GPU; at `position`, else at those of the run.

        What did not pass has no latencies, and one that is implausible is taken out: `left_out` says which and why.
        """
        return [self._plausible(record) for record in self.measured_records(stacks, position)]

    def measured_records(self, stacks: Sequence[Stack], position: int | None = None) -> list[dict[str, Any]]:
        """Validate and time each stack, each in a process of its own.

        Raises LabError where timing is forbidden, and MachineError where another process has ended one of them.
        """
        from experiments.run.sweep import open_sweep

        timing = self.config.timing
        if timing is None:
            raise LabError("this experiment measures, and timing=none forbids it", "leave timing=none out")
        timing = timing if position is None else replace(timing, positions=(position,))
        with open_sweep(replace(self.config, stacks=tuple(stacks), timing=timing), self.show) as sweep:
            sweep.run()
        records = [sweep.records[index] for index in range(len(stacks))]
        for record in records:
            if record["status"] == "INTERRUPTED":  # no row is made of what says nothing
                raise MachineError(f"{record['variant']}: {record['reason']}", "give the command again")
        return records

    def _plausible(self, record: dict[str, Any]) -> dict[str, Any]:
        failure = f"Left out: {label(record)}, {record['status']}: {record['reason']}"
        if record["status"] != "PASSED" and failure not in self.left_out:  # at one position, or at each
            self.left_out.append(failure)
        kept = []
        for timed in record["latencies"]:
            if timed["verdict"] == "IMPLAUSIBLE":
                place = f"{label(record)} at position {timed['position']}"
                ceiling = f"{100 * timed['of_ceiling']:.0f} % of the read ceiling"
                self.left_out.append(f"Left out: {place}, IMPLAUSIBLE: {ceiling}")
            else:
                kept.append(timed)
        return record | {"latencies": kept}


def microseconds(record: Mapping[str, Any], position: int) -> float:
    """Median latency of a measured record at `position`; NaN where it has none."""
    found = (timed for timed in record["latencies"] if timed["position"] == position)
    return next((1e6 * timed["seconds"]["median"] for timed in found), float("nan"))

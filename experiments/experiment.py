"""One experiment: its configuration, times, rows and table.

Rows are attempted within the budget, kept at once, and read from the store on resuming.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from common.config import budget
from common.config.run_config import RunConfig
from common.config.section import Section
from common.devices.counters import Counts
from common.devices.protocol import Session
from common.errors import LabError, Unfinished
from common.errors.machine import MachineError, system_errors
from common.json_values import to_json
from common.record.measurement import IMPLAUSIBLE
from common.record.provenance import code_sha, provenance
from common.stacks.stack import Constants, Stack
from experiments.estimate import Gpu, estimate, read_gpu, step_of
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.run.sweep import open_sweep
from experiments.tables.result_table import COUNTED, MEASURED, ResultTable
from experiments.tables.row import label, label_of, plausible

Figures = Mapping[str, Any]
ROW = "row"  # kind of the record of one row of an experiment
NOT_RUN = "not run"  # state of a row that lacks something here: it is asked again, as it may be there now
TIME = "GPU time; a count here is exact, an estimate is arithmetic with measured costs (experiments/estimate.py)"


class Experiment(Setup):
    """One experiment under way, with the parts of the lab that its rows need.

    Its stacks are those of the run, or of `options`, with the knobs of the command line.
    """

    @property
    def options(self) -> Section:
        return self.config.options

    def stack(self, name: str) -> Stack:
        """The variant or named stack `name`, with its knobs from the command line."""
        return self.choose(name, self.own_knobs(self.choose(name, {}).variants))

    def chosen(self, *more: Stack) -> list[Stack]:
        """Stacks of `options.variants`, each once, else the run's; then `more`. Raises LabError for a knob none has."""
        names = dict.fromkeys(self.options.texts("variants"))
        stacks = [*(map(self.stack, names) if names else self.config.stacks), *more]
        self.check_knobs(stacks)
        return stacks

    def check_given(self, stacks: Sequence[Stack]) -> None:
        """Raise LabError for variant=, stack= or a knob of the command line without effect on the own `stacks`."""
        names, catalog = [stack.name for stack in self.config.stacks], self.catalog
        if not {*names} >= {*catalog.variants}:  # not those of variant=all or catalog, the defaults
            one = names[0] if len(names) == 1 and names[0] in {*catalog.variants, *catalog.stacks} else "NAME"
            remedy = f"give options.variants=[{one}]" if stacks else "leave it out"
            raise LabError(f"variant= or stack= has no effect on experiment={self.config.task}", remedy)
        self.check_knobs(stacks)

    def check_knobs(self, stacks: Sequence[Stack]) -> None:
        """Raise LabError for a knob of the command line that none of `stacks` has."""
        effective = self.own_knobs([name for stack in stacks for name in stack.variants])
        for knob in sorted(self.config.knobs.keys() - effective.keys()):
            names = ", ".join(stack.name for stack in stacks) or "it"
            cause = f"{knob}= has no effect on experiment={self.config.task}: {names} has no such knob"
            raise LabError(cause, f"leave it out; variants that take it: {', '.join(self.catalog.takers(knob))}")

    def own_knobs(self, variants: Sequence[str]) -> dict[str, Any]:
        """Knobs of the command line that one of `variants` has."""
        takers = self.catalog.takers
        return {knob: value for knob, value in self.config.knobs.items() if not set(variants).isdisjoint(takers(knob))}

    @cached_property
    def left_out(self) -> list[str]:
        """A line for each result that is in no table, with the reason."""
        return []

    @property
    def on_gpu(self) -> bool:
        return self.config.device.name == "cuda"

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The positions in `options.positions` that the KV cache holds; others are noted as left out.

        Raises LabError when it holds none of them.
        """
        positions = dict.fromkeys(self.options.wholes("positions", low=0))
        if min(positions) >= self.model.positions:
            cause = f"options.positions: none of {[*positions]} is in 0..{self.model.positions - 1}"
            raise LabError(f"{cause}, the positions of the KV cache", f"give model.positions={min(positions) + 1}")
        if beyond := [position for position in positions if position >= self.model.positions]:
            self.left_out.append(f"Left out: positions {beyond}: model.positions is {self.model.positions}")
        return tuple(position for position in positions if position not in beyond)

    @property
    def position(self) -> int:
        return self.options.whole("position", low=0, high=self.model.positions - 1)

    @property
    def gpu(self) -> Gpu:
        """The GPU that estimates are for, `options.gpu`."""
        return read_gpu(self.options.text("gpu"))

    def need_gpu(self) -> None:
        """Raise LabError where there is no GPU, for an experiment of which nothing is left without one."""
        if not self.on_gpu:
            cause = f"experiment={self.config.task} measures GPU time, and device={self.config.device.name} has none"
            raise LabError(cause, "run it where there is a CUDA GPU; experiment=counts and ablation need none")

    def counts(self, variants: Sequence[str], knobs: Mapping[str, Constants]) -> Counts:
        """Exact counts of one step of `variants`, from a record or made now. Raises LabError without NVRTC or g++."""
        return self.counting.count(self.counting.source(variants, knobs))

    def estimate(self, stack: Stack, position: int) -> float:
        """Estimated microseconds of a step at `position` on `gpu`. Raises LabError."""
        source = self.counting.source(stack.variants, stack.knobs)
        return estimate(step_of(source, self.counting.count(source), self.model, position), self.gpu)

    def answer(
        self,
        question: str,
        rows: Sequence[Figures],
        notes: Sequence[str] = (),
        otherwise: tuple[str, str | None] = (COUNTED, TIME),
        keys: int = 1,
    ) -> ResultTable:
        """Table of figures measured on a GPU; `otherwise`: their basis without one, and what a GPU would add."""
        basis, missing = (MEASURED, None) if self.on_gpu else otherwise
        return ResultTable(self.config.task, question, rows, basis, notes, missing, keys)

    def latencies(self, stacks: Sequence[Stack], positions: Sequence[int] = ()) -> list[tuple[Stack, list[Figures]]]:
        """Each stack with its measured latencies; a stack without any is left out.

        positions: each in a record of its own, so that an interruption loses no other; (): those of the run.
        """
        runs = [self.measure(stacks, position) for position in positions] or [self.measure(stacks)]
        found = [[timed for record in records for timed in record["latencies"]] for records in zip(*runs, strict=True)]
        return [(stack, of_stack) for stack, of_stack in zip(stacks, found, strict=True) if of_stack]

    def measure(self, stacks: Sequence[Stack], position: int | None = None) -> list[dict[str, Any]]:
        """The record of each stack, timed beside its parent on the GPU; at `position`, else at the run's.

        A stack that did not pass has no latencies, and IMPLAUSIBLE ones are removed: `left_out` says which and why.
        """
        records = self.measured_records(stacks, position)
        for record in records:
            failure = f"Left out: {label(record)}, {record['status']}: {record['reason']}"
            if record["status"] != "PASSED" and failure not in self.left_out:  # at one position, or at each
                self.left_out.append(failure)
            for timed in record["latencies"]:
                if timed["verdict"] == IMPLAUSIBLE:
                    share = f"{IMPLAUSIBLE}: {100 * timed['of_ceiling']:.0f} % of the read ceiling"
                    self.left_out.append(f"Left out: {label(record)} at position {timed['position']}, {share}")
        return [record | {"latencies": plausible(record)} for record in records]

    def timed(self, position: int | None) -> RunConfig:
        """The configuration with timing, at `position` if one is given. Raises LabError for timing=none."""
        timing = self.config.timing
        if timing is None:
            raise LabError(f"experiment={self.config.task} measures, and timing=none forbids it", "leave it out")
        return self.config if position is None else replace(self.config, timing=replace(timing, positions=(position,)))

    def measured_records(self, stacks: Sequence[Stack], position: int | None = None) -> list[dict[str, Any]]:
        """Validate and time each stack, each in a process of its own.

        Raises LabError where timing is forbidden, and MachineError where another process has ended one of them.
        """
        with open_sweep(replace(self.timed(position), stacks=tuple(stacks)), self.show) as sweep:
            sweep.run()
        records = [sweep.records[index] for index in range(len(stacks))]
        for record in records:
            if record["status"] == "INTERRUPTED":  # it says nothing, so it gives no row
                raise MachineError(f"{record['variant']}: {record['reason']}", "give the command again")
        return records

    def rows(self, stacks: Sequence[Stack], work: Callable[[Stack], Figures]) -> list[dict[str, Any]]:
        """`work(stack)` of each stack under its label; one that fails is left out."""
        rows = [(label_of(stack), self.attempt(label_of(stack), partial(work, stack))) for stack in stacks]
        return [{"variant": name, **row} for name, row in rows if row]

    def session_rows(self, stacks: Sequence[Stack], work: Callable[[Session], Figures]) -> list[dict[str, Any]]:
        """`work(session)` of each stack under its label, kept as `row` does; one that fails is left out."""

        def in_session(stack: Stack) -> Figures:
            with closing(LabStack(self, stack).session()) as session:
                return work(session)

        rows = []
        for stack in stacks:
            if row := self.row(label_of(stack), partial(in_session, stack), stack=stack):
                rows.append({"variant": label_of(stack), **row})
        return rows

    def attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of `work`; None if it fails: only the row `name` is lost, and `left_out` says why.

        Raises Unfinished, before the row begins, where it would not end within the budget; MachineError.
        """
        if not self.config.budget.holds(self._took):
            cause = f"the rows from {name} on are left, at about {self.config.budget.estimate(self._took):.0f} s each"
            raise Unfinished(f"experiment={self.config.task}: {cause}", "the same command goes on there")
        began = budget.clock()
        try:
            with system_errors(name):
                return work()
        except (Unfinished, MachineError):
            raise
        except LabError as error:
            self.left_out.append(f"{NOT_RUN.capitalize() if type(error) is LabError else 'Left out'}: {name}: {error}")
        except Exception as error:  # from a kernel, a library or another engine
            self.left_out.append(f"Left out: {name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        finally:
            self._took.append(budget.clock() - began)
        return None

    def row(self, name: str, work: Callable[[], Figures], on_device: bool = True, **about: Any) -> Figures | None:
        """`attempt`, kept as a record at once: an interruption loses no finished row, and resuming takes it from there.

        on_device: `work` may use the GPU, and has it alone.
        about: conditions of the row other than configuration and code, such as the sha of a kernel's source.
        """
        identity = to_json({**self._about, "row": name, "about": about})
        if self.config.resume:
            for record in reversed(self._rows):
                state = (record["found"] or {"state": record["reason"]}).get("state", "")
                if record["asked"] == identity and not state.lower().startswith(NOT_RUN):
                    self.left_out.extend([record["reason"]] if record["reason"] else [])
                    return record["found"]
        self.show.begin(name)
        failures = len(self.left_out)
        with self.exclusive_gpu() if on_device else nullcontext():
            figures = self.attempt(name, work)
        reason = "".join(self.left_out[failures:])
        kept = {"kind": ROW, "asked": identity, "found": figures, "reason": reason, "took": self._took[-1]}
        self.store.append(kept | {"provenance": provenance(self.config.device.bus_id)})
        if self.on_gpu and on_device:
            from common.devices.cuda import context_lost

            if context_lost():
                cause = f"after {name} this process cannot use the GPU any more"
                raise Unfinished(cause, "the same command goes on after it")
        return figures

    @cached_property
    def _about(self) -> dict[str, Any]:
        names, origin = ("task", "device", "seed", "threads", "blocks"), provenance()
        return {name: getattr(self.config, name) for name in names} | {
            "versions": {name: origin[name] for name in ("torch", "nvrtc")},
            "options": self.options.values,
            "model": self.model,
            "weights": self.packed.sha,
            "code": code_sha(),
        }

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """The rows of this experiment that the store has."""
        return [
            row for row in self.store.records() if row.get("kind") == ROW and row["asked"]["task"] == self.config.task
        ]

    @cached_property
    def _took(self) -> list[float]:
        """Seconds of rows of this experiment with this model on this device, the newest last."""
        own = to_json([self.config.device, self.model])
        return [row["took"] for row in self._rows if [row["asked"]["device"], row["asked"]["model"]] == own]

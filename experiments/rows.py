"""Rows of an experiment: attempted within its budget, kept at once, and read from the store on resuming."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from common.cache.files import again
from common.config import budget
from common.config.run_config import RunConfig
from common.devices.protocol import Session
from common.errors import LabError, Unfinished
from common.errors.machine import MachineError, system_errors
from common.json_values import to_json
from common.model.shapes import Model
from common.record.provenance import code_sha, provenance
from common.record.store import Store
from common.stacks.stack import Stack
from experiments.prediction.setup import PredictingSetup
from experiments.run.setup import Setup
from experiments.tables.progress import Progress
from experiments.tables.row import label_of

ROW = "row"  # kind of the record of one row of an experiment


@dataclass(frozen=True)
class Rows:
    """The configuration of an experiment, and what its rows need of the lab, made when it is first used."""

    config: RunConfig
    show: Progress

    @property
    def on_gpu(self) -> bool:
        return self.config.device.name == "cuda"

    @property
    def model(self) -> Model:
        return self.lab.model

    @cached_property
    def left_out(self) -> list[str]:
        """A line for each result that is in no table, with the reason."""
        return []

    @property
    def store(self) -> Store:
        return self.lab.store

    @cached_property
    def lab(self) -> PredictingSetup:
        """Device, weights and predictor, made when they are first needed."""
        return PredictingSetup(self.config, self.show)

    def rows(self, stacks: Sequence[Stack], work: Callable[[Stack], Mapping[str, Any]]) -> list[dict[str, Any]]:
        """`work(stack)` of each stack under its label; one that fails is left out."""
        rows = [(label_of(stack), self.attempt(label_of(stack), partial(work, stack))) for stack in stacks]
        return [{"variant": name, **row} for name, row in rows if row]

    def session_rows(
        self, stacks: Sequence[Stack], work: Callable[[Session], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """`work(session)` of each stack under its label, kept as `row` does; one that fails is left out."""

        def in_session(stack: Stack) -> Mapping[str, Any]:
            with closing(open_session(self.lab, stack)) as session:
                return work(session)

        rows = []
        for stack in stacks:
            if row := self.row(label_of(stack), partial(in_session, stack), source=self.lab.source(stack).sha):
                rows.append({"variant": label_of(stack), **row})
        return rows

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

        about: conditions of the row other than configuration and code, such as the sha of a kernel's source.
        """
        identity = to_json({**self._about, "row": name, "about": about})
        if self.config.resume:
            for record in reversed(self._rows):
                if record["asked"] == identity:
                    self.left_out.extend([record["reason"]] if record["reason"] else [])
                    return record["found"]
        self.show.begin(name)
        failures = len(self.left_out)
        figures = self.attempt(name, work)
        reason = "".join(self.left_out[failures:])
        self.store.append(
            {"kind": ROW, "asked": identity, "found": figures, "reason": reason, "took": self._took[-1]}
            | {"provenance": provenance()}
        )
        if self._lost():
            raise Unfinished(
                f"after {name} this process cannot use the GPU any more", "the same command goes on after it"
            )
        return figures

    def _lost(self) -> bool:
        """True if a row has destroyed this process's context on the GPU, so that every later call fails."""
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


def open_session(lab: Setup, stack: Stack) -> Session:
    """A session of `stack` with the run's weights."""
    from experiments.run.steps import LabStack

    return LabStack(lab, stack).session()

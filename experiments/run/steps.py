"""The steps of one stack, one method each: compile, inspect, validate, count, measure, record."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

from common.compile.sass import Resources, inspect
from common.compile.source import Source
from common.devices.counters import Counts
from common.devices.nvtx import annotate, title
from common.devices.protocol import Session
from common.display.table import html
from common.errors import CompileError, Crashed, Hung, LabError, Mismatched, OutOfMemory, Refused
from common.errors.machine import system_errors
from common.json_values import to_json
from common.stacks.stack import Stack, equals_parent
from common.stacks.stack import title as title_of
from common.stopwatch import part, spent
from common.validate.check import validate
from common.validate.prove import compile_all, prove, texts
from common.validate.scenarios import scenarios, steps_in_all
from common.validate.trials import Trial, chosen, not_exercised
from common.validate.verdict import Verdict
from experiments.run.describe import Findings, keep
from experiments.run.setup import Setup
from experiments.run.timeline import Timeline, read, rewind
from experiments.tables.row import label_of
from experiments.tables.run_table import run_table
from experiments.timing.measure import Kernel, Measurement
from experiments.timing.paired import time_pair

STATUS: dict[type[LabError], str] = {
    CompileError: "COMPILE_ERROR",
    Hung: "HUNG",
    OutOfMemory: "OOM",
    Crashed: "CRASHED",
    Mismatched: "MISMATCH",
    Refused: "REFUSED",
}
NOT_VALIDATED = "not validated"


class LabStack:
    """One stack of a setup. Each step first runs the earlier ones that it needs, and keeps its findings.

    found: the findings so far, as in a record.
    """

    def __init__(self, setup: Setup, stack: Stack) -> None:
        self.setup, self.stack, self.found = setup, stack, Findings()

    @property
    def name(self) -> str:
        return self.stack.name

    @property
    def parent(self) -> Self:
        """The stack that this one is compared with, with the same knobs."""
        stack = self.stack
        return type(self)(self.setup, replace(stack, name=title_of(stack.parent), variants=stack.parent))

    @cached_property
    def source(self) -> Source:
        """The flattened text. Raises LabError."""
        source = self.setup.source(self.stack)
        self.found.source_sha = source.sha
        return source

    @cached_property
    def program(self) -> Any:
        """The text compiled for the device. Raises CompileError."""
        with part("compile"):
            return self.setup.device.compile(self.source)

    def session(self) -> Session:
        """Buffers for the compiled stack, on the configured grid; close it after use. Raises LabError."""
        setup = self.setup
        return setup.device.session(self.program, setup.packed.flat, setup.config.blocks)

    def compile(self) -> Self:
        """Build the text and compile it for the device; returns this stack.

        Raises CompileError, whose `report` is the compiler's output.
        """
        with self._step("compile"):
            self.program  # noqa: B018  compiles it
        return self

    def compile_ahead(self) -> None:
        """As `compile`, and side by side every other text that validation and measurement will need."""
        with self._step("compile"):
            compile_all(self.setup.device, self._texts())
            self.program  # noqa: B018  compiles it

    def _texts(self) -> Iterator[Source]:
        """Every text of a row, its own first."""
        setup = self.setup
        yield self.source
        if setup.config.timing or equals_parent(self.stack, setup.catalog):
            with suppress(LabError):  # reported by the step that needs the text, as below
                yield self.parent.source
        for trial in chosen(setup.config.validation.trials) if self.found.verdict is None else ():
            with suppress(LabError):
                yield from () if trial.races else texts(setup.catalog, self.stack, trial.like(setup.model))[1]

    def resources(self) -> dict[str, Resources]:
        """Registers, spills and instructions by arch (`sm_90`), for every arch of `archs=`; needs no GPU.

        Raises CompileError for a text that NVRTC refuses, LabError where NVRTC or nvdisasm is missing.
        """
        with self._step("inspect"):
            config = self.setup.config
            self.found.resources = inspect(self.source, config.archs, config.cache / "cubins")
        return self.found.resources

    def validate(self) -> Verdict:
        """Compare every stage with the reference, and with the parent where the variant must be equal to it.

        A kernel that is wrong is a verdict; one that cannot run raises CompileError, Hung, Crashed, OutOfMemory or
        Refused, which are LabErrors. The verdict is kept: a second call returns the first one.
        """
        if self.found.verdict is None:
            with self.setup.exclusive_gpu(), self._step("validate"), closing(self.session()) as session:
                self.found.blocks = session.blocks
                self.found.verdict = self._validate(session)
                if self.found.verdict.passed:
                    self.found.counts = _count(session)
            verdict = self.found.verdict
            self.found.status, self.found.report = verdict.status, ""
            self.found.reason = "" if verdict.passed else f"{verdict.mismatch}; seed {verdict.seed}"
        return self.found.verdict

    def counts(self) -> Counts:
        """Exact counts of one step at position 1. Raises LabError on a GPU, which counts nothing."""
        if self.found.counts is None:
            with self._step("count"), closing(self.session()) as session:
                self.found.counts = _count(session)
        if self.found.counts is None:
            raise LabError(f"device={self.setup.config.device.name} counts nothing", "use device=ptx")
        return self.found.counts

    def measure(self, beat: float | None = None) -> tuple[Measurement, ...]:
        """Time the stack beside its parent on the GPU, if it passes validation.

        beat: seconds of a step; the measurement of a stack that surely needs more is STOPPED.
        Returns one measurement for each position, then one of a whole generation unless it was stopped. Raises
        LabError without a GPU, with timing=none, for a stack that did not pass, and for one that is wrong where it is
        timed.
        """
        config = self.setup.config
        if config.device.name != "cuda":
            raise LabError(f"device={config.device.name} has no GPU time to measure", "use a GPU")
        if config.timing is None:
            raise LabError("timing=none forbids measuring", "open the lab without it")
        self.validate()
        if self.found.status != "PASSED":
            raise LabError(f"{self.name} is {self.found.status}: {self.found.reason}", "only what passes is timed")
        with (
            self.setup.exclusive_gpu(),
            self._step("measure"),
            closing(self.session()) as child,
            closing(self.parent.session()) as base,
        ):
            pair = Kernel(self.stack.variants, child), Kernel(self.stack.parent, base)
            on_detail, expected = self.setup.show.detail, self.setup.expected
            latencies, generation = time_pair(*pair, expected, config.timing, config.seed, on_detail, beat)
        self.found.latencies, self.found.generation = tuple(latencies), generation
        return (*latencies, generation) if generation else tuple(latencies)

    def timeline(self, position: int = 1) -> Timeline:
        """Work and waits of each block in one step at `position`, from timestamps that the kernel writes itself.

        It is compiled for that, has its own buffers, and is not the one that is validated and timed. Raises LabError,
        also for a position that the KV cache does not hold.
        """
        setup, positions = self.setup, self.setup.model.positions
        if type(position) is not int or not 0 <= position < positions:  # True is an int, too
            raise LabError(f"position={position!r} is not in 0..{positions - 1}", "give a position of the KV cache")
        if not setup.trace:
            return LabStack(Setup(setup.config, setup.show, trace=True), self.stack).timeline(position)
        device = setup.config.device.name
        with setup.exclusive_gpu(), closing(self.session()) as session:
            for _ in ("warm up", "trace"):
                rewind(session, position, 1)
                session.run(1)
            return read(session, f"{self.name}, {setup.model.name}, position {position}, {device}", device)

    def record(self) -> str:
        """Append the findings to the store, as a run does; returns the record's id. Raises LabError."""
        if not self.found.status:
            raise LabError(f"{self.name} has not been validated", "call validate() before record()")
        return self.append(self.found.as_record())

    def append(self, found: dict[str, Any]) -> str:
        """Write one record, `found` and its conditions; returns its id."""
        return keep(self.setup, self.setup.device.describe(), self.stack, found)["id"]

    def fail(self, error: LabError) -> None:
        """Take status and report of `error`."""
        self.found.status = next((name for kind, name in STATUS.items() if isinstance(error, kind)), "REFUSED")
        self.found.reason = str(error)
        self.found.report = error.report

    def __repr__(self) -> str:
        return f"LabStack({label_of(self.stack)}: {self.found.status or NOT_VALIDATED})"

    def _repr_html_(self) -> str:
        about = {"variant": self.name, "stack": self.stack.variants, "knobs": self.stack.knobs}
        status = {"status": self.found.status or NOT_VALIDATED}
        return html(run_table([to_json(self.found.as_record() | about | status)]))

    @contextmanager
    def _step(self, verb: str) -> Iterator[None]:
        """Show and mark a step; a fault of the kernel becomes the stack's status."""
        self.setup.show.begin(f"{verb} {self.name}")
        try:
            with (
                annotate(title(verb, self.stack.variants)),
                system_errors(f"{verb} {self.name}"),
                spent(self.found.seconds),
                part(verb),
            ):
                yield
        except tuple(STATUS) as error:
            self.fail(error)
            raise

    def _validate(self, session: Session) -> Verdict:
        """The verdict of the first seed that finds a mismatch, else of the last one."""
        setup, config, weights = self.setup, self.setup.config.validation, self.setup.packed.flat
        quick = setup.model.large if config.quick is None else config.quick
        alone = not equals_parent(self.stack, setup.catalog)
        for number in range(config.seeds):
            seed, of = setup.config.seed + number, f"seed {number + 1} of {config.seeds}"
            tokens = session.layout.tokens
            all_tokens = tokens * steps_in_all(setup.model, quick, tokens)
            on_step = partial(self._show_step, f"{of}, token {{}} of {all_tokens}: {{}}")
            starts = scenarios(setup.model, seed, weights, quick, tokens)
            with nullcontext() if alone else closing(self.parent.session()) as parent:
                verdict = validate(session, weights, starts, seed, setup.expected, on_step, parent)
            with part("trials"):
                verdict = self._tried(verdict, f"{of}, ")
            if not verdict.passed:
                break
        return verdict

    def _tried(self, verdict: Verdict, of: str) -> Verdict:
        """`verdict`, with the mismatch of the first trial that finds one, and cases that no trial exercised."""
        setup, done = self.setup, list[Trial]()
        for trial in chosen(setup.config.validation.trials) if verdict.passed else ():
            on_step = partial(self._show_step, f"{of}trial {trial.name}, token {{}}: {{}}")
            cache, catalog = setup.config.cache, setup.catalog
            try:
                device = setup.racing if trial.races else setup.device
                own = trial.like(setup.model)
                found = prove(device, catalog, self.stack, own, cache, verdict.seed, on_step=on_step)
            except LabError as error:
                if trial.races and type(error) is LabError:  # no verdict: the PTX device does not run here
                    setup.show.note(f"not looked for races: {error}")
                elif not isinstance(error, Refused) or setup.device.name != "cuda":
                    raise
                continue  # also for a grid that this GPU cannot hold
            done.append(trial)
            verdict = replace(verdict, mismatch=found.mismatch, steps=verdict.steps + found.steps)
            if found.mismatch:
                break
        return replace(verdict, not_exercised=not_exercised(done))

    def _show_step(self, text: str, done: int, scenario: str) -> None:
        self.setup.show.detail(text.format(done, scenario))


def _count(session: Session) -> Counts | None:
    """Counts of one step at position 1, the first that reads a cache."""
    session.reset([0], position=0)
    session.run()
    return session.count()

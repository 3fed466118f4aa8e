"""The steps of a run, one function each: compile, inspect, validate, measure, record. A failure ends its stack only."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any

from common.catalog import read_catalog
from common.check import compare_bits, validate
from common.config import RunConfig, check_positions
from common.counters import Counts
from common.devices import Device, Session
from common.errors import CompileError, Crashed, Hung, LabError, OutOfMemory, Refused
from common.expected import LARGE, Expected
from common.gpu import Gpu
from common.layout import Layout
from common.model import Model
from common.plain import plain
from common.provenance import provenance
from common.ranges import annotate, title
from common.records import Store, key
from common.sass import Resources
from common.scenarios import scenarios
from common.source import Source, build
from common.stack import Stack
from common.verdict import Verdict
from common.weights import Packed, load
from experiments.facts import inspect
from experiments.progress import Progress
from experiments.rows import row_of
from experiments.table import Row
from experiments.timing.measure import Measurement

STATUS = {CompileError: "COMPILE_ERROR", Hung: "HUNG", OutOfMemory: "OOM", Crashed: "CRASHED", Refused: "REFUSED"}


@dataclass(frozen=True)
class Lab:
    """What all stacks of a run share."""

    config: RunConfig
    device: Device
    model: Model
    layout: Layout
    packed: Packed
    store: Store
    show: Progress

    @cached_property
    def expected(self) -> Expected:
        """What steps should leave; the stacks of a process share it."""
        return Expected(self.model, self.layout, self.packed.flat)


@dataclass(frozen=True)
class Case:
    """One stack on its way through the steps; a field is filled by the step that finds it."""

    stack: Stack
    status: str = ""  # empty while nothing is decided, then a verdict of validation
    reason: str = ""
    report: str = ""  # of a compiler or of a stuck launch, many lines
    source: Source | None = None
    program: Any = None
    resources: dict[str, Resources] = field(default_factory=dict)
    verdict: Verdict | None = None
    blocks: int | None = None
    counts: Counts | None = None
    latencies: tuple[Measurement, ...] = ()
    generation: Measurement | None = None


def prepare(config: RunConfig, show: Progress) -> Lab:
    """All that the steps need in one process. Raises LabError for what no stack could run without."""
    store, (model, layout, packed) = gather(config, show)
    return Lab(config, open_device(config), model, layout, packed, store, show)


def gather(config: RunConfig, show: Progress) -> tuple[Store, tuple[Model, Layout, Packed]]:
    """The store, and what `weights_of` gives. Raises LabError."""
    store = Store(config.results)
    store.check()
    show.note(f"device {config.device.name}: {config.device.why}; seed {config.seed}")
    show.begin(f"load weights: {config.weights}")
    return store, weights_of(config)


def weights_of(config: RunConfig) -> tuple[Model, Layout, Packed]:
    """Model, layout and packed weights, which are made once and then found in the cache. Raises LabError."""
    found = load(config.weights, config.model, config.positions, config.cache / "weights", config.seed)
    check_positions(config.timing, found[0])
    return found


def open_device(config: RunConfig) -> Device:
    """The device that `config` chose."""
    if config.host:
        from common.devices.host import HostDevice
        from common.devices.sanitized import SanitizedDevice

        chosen = SanitizedDevice if config.sanitize else HostDevice
        return chosen(config.cache / "kernels", config.seed, config.host.workers, config.host.timeout_s)
    from common.devices.cuda import CudaDevice

    return CudaDevice()


Step = Callable[[Lab, Case], Case]


def _step(verb: str) -> Callable[[Step], Step]:
    """Show and mark a step, skip it once the stack has failed, and turn what a kernel does wrong into its status."""

    def decorate(step: Step) -> Step:
        @wraps(step)
        def guarded(lab: Lab, case: Case) -> Case:
            lab.show.begin(f"{verb} {case.stack.name}")
            if case.status not in ("", "PASSED"):
                return case
            try:
                with annotate(title(verb, case.stack.variants)):
                    return step(lab, case)
            except tuple(STATUS) as error:
                lab.show.note(f"error: {case.stack.name}: {error}")
                return failed(case, error)

        return guarded

    return decorate


def failed(case: Case, error: LabError) -> Case:
    """The case with the status that `error` stands for, and its report."""
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), "REFUSED")
    return replace(
        case, status=status, reason=str(error), report=getattr(error, "log", "") or getattr(error, "report", "")
    )


@_step("compile")
def compile_stack(lab: Lab, case: Case) -> Case:
    """Build the text of the stack and compile it for the device."""
    case = replace(case, source=source_of(lab, case.stack.variants, case.stack))
    return replace(case, program=lab.device.compile(case.source))


@_step("inspect")
def inspect_stack(lab: Lab, case: Case) -> Case:
    """Read what NVRTC makes of the text for every arch that is asked for; needs no GPU."""
    try:
        return replace(case, resources=inspect(case.source, lab.config.archs, lab.config.cache / "cubins"))
    except CompileError:
        raise
    except LabError as error:  # a device that works should not be lost for want of NVRTC or nvdisasm
        lab.show.note(f"no registers or spills: {error}")
        return case


@_step("validate")
def validate_stack(lab: Lab, case: Case) -> Case:
    """Compare every stage with the reference, and with the parent where the variant must be equal to it."""
    config, weights = lab.config, lab.packed.flat
    quick = config.validation.quick
    quick = lab.model.matrix_weights > LARGE if quick is None else quick
    with closing(open_session(lab, case.program)) as session:
        for number in range(config.validation.seeds):
            seed = config.seed + number
            lab.show.detail(f"seed {number + 1} of {config.validation.seeds}")
            starts = scenarios(lab.model, seed, weights, quick)
            verdict = validate(session, weights, lab.model, starts, seed, expected=lab.expected)
            mismatch = verdict.mismatch
            if verdict.passed and _must_equal_parent(case.stack):
                program = lab.device.compile(source_of(lab, case.stack.parent, case.stack))
                with closing(open_session(lab, program)) as parent:
                    mismatch = compare_bits(session, parent, scenarios(lab.model, seed, weights, quick))
            case = replace(case, verdict=verdict, blocks=session.blocks)
            if mismatch:
                return replace(case, status="MISMATCH", reason=f"{mismatch}; seed {seed}")
        return replace(case, status="PASSED", counts=_count(session))


def measure_stack(lab: Lab, case: Case) -> Case:
    """Time the stack beside its parent if it passed; the host device has no GPU time to measure."""
    return _race(lab, case) if lab.config.timing and lab.config.device.name == "cuda" else case


@_step("measure")
def _race(lab: Lab, case: Case) -> Case:
    from experiments.timing.race import Racer, race

    stack, parent = case.stack, lab.device.compile(source_of(lab, case.stack.parent, case.stack))
    with closing(open_session(lab, case.program)) as child, closing(open_session(lab, parent)) as base:
        racers = Racer(stack.variants, child), Racer(stack.parent, base)
        latencies, generation = race(*racers, lab.config.timing, lab.config.seed, lab.show.detail)
    return replace(case, latencies=tuple(latencies), generation=generation)


def record(lab: Lab, case: Case) -> Row:
    """Append the case to the store; returns what the table shows of it."""
    found = findings(case)
    whole = about(lab.config, lab.model, lab.packed, lab.device.describe(), case.stack, found) | found
    return row_of(plain(whole), lab.store.append(whole))


def findings(case: Case) -> dict[str, Any]:
    """What the steps found, as a record has it."""
    return {
        "kind": "run",
        "status": case.status,
        "reason": case.reason,
        "report": case.report,
        "source_sha": case.source.sha if case.source else "",
        "blocks": case.blocks,
        "verdict": case.verdict,
        "counts": case.counts and case.counts.as_dict(),
        "resources": case.resources,
        "latencies": case.latencies,
        "generation": case.generation,
    }


def append(lab: Lab, case: Case, found: Mapping[str, Any]) -> str:
    """Write one record, `found` and what it was found with; returns its id."""
    known = {"source_sha": case.source.sha if case.source else "", "blocks": case.blocks} | found
    return lab.store.append(about(lab.config, lab.model, lab.packed, lab.device.describe(), case.stack, known) | known)


def about(
    config: RunConfig,
    model: Model,
    packed: Packed,
    device: Mapping[str, Any],
    stack: Stack,
    found: Mapping[str, Any],
    gpu: Gpu | None = None,
) -> dict[str, Any]:
    """What a record says beside its findings. device: as `Device.describe` gives it; gpu: the one that did the work."""
    return {
        "key": key_of(found["source_sha"], stack, model, packed, device),
        "variant": stack.name,
        "stack": stack.variants,
        "parent": stack.parent,
        "knobs": stack.knobs,
        "model": model,
        "weights": {"sha": packed.sha, "source": Path(packed.source).name},
        "device": device,
        "threads": config.threads,
        "asked": asked(config),
        "seed": config.seed,
        "provenance": provenance(gpu),
    }


def key_of(source_sha: str, stack: Stack, model: Model, packed: Packed, device: Mapping[str, Any]) -> str:
    """The record's key; GPUs of one name are one device."""
    return key(source_sha, stack.knobs, model, packed.sha, device.get("gpu", device["device"]), device["compiler"])


def asked(config: RunConfig) -> dict[str, Any]:
    """What was asked for beyond the key: two records answer one question when this is equal too."""
    names = ("validation", "timing", "blocks", "archs", "sanitize")
    return {name: getattr(config, name) for name in names}


def source_of(lab: Lab, variants: tuple[str, ...], stack: Stack) -> Source:
    """The flattened text of `variants` (the stack itself or its parent) with the stack's knobs."""
    return source_text(variants, stack, lab.model, lab.config.threads)


def source_text(variants: tuple[str, ...], stack: Stack, model: Model, threads: int) -> Source:
    """The same, of a model and a block size."""
    known = read_catalog().variants
    return build([known[name] for name in variants], model, threads, stack.knobs)


def open_session(lab: Lab, program: Any) -> Session:
    """Buffers for a compiled program, on the grid that the configuration asks for."""
    return lab.device.session(program, lab.layout, lab.packed.flat, lab.config.blocks)


def _must_equal_parent(stack: Stack) -> bool:
    known = read_catalog().variants
    added = [known[name] for name in stack.variants if name not in stack.parent]
    return bool(added) and all(variant.bit_equal for variant in added)


def _count(session: Session) -> Counts | None:
    """Counts of one step at position 1, the first that reads a cache."""
    session.reset([0], position=0)
    session.run()
    session.run()
    return session.counts()

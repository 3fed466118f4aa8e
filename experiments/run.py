"""The steps of a run, one function each: compile, inspect, validate, measure, record. A failure ends its stack only."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

from common.catalog import read_catalog
from common.check import compare_bits, validate
from common.config import RunConfig, check_positions
from common.counters import Counts
from common.devices import Device, Session
from common.errors import CompileError, Crashed, Hung, LabError, Refused
from common.layout import Layout
from common.model import Model
from common.nvrtc import ARCHS, compile_all
from common.provenance import provenance
from common.ranges import annotate, title
from common.records import Store, key
from common.sass import Resources, resources
from common.scenarios import scenarios
from common.source import Source, build
from common.stack import Stack
from common.verdict import Verdict
from common.weights import Packed, load
from experiments.measure import Measurement
from experiments.progress import Progress
from experiments.table import Fact, Row, Timed

STATUS = {CompileError: "COMPILE_ERROR", Refused: "REFUSED", Hung: "HUNG", Crashed: "CRASHED"}
LARGE = 10_000_000  # matrix weights from which a step on the host device, and its reference, takes seconds


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
    """Device, weights and store. Raises LabError for what no stack could run without."""
    store = Store(config.results)
    store.check()
    show.note(f"device {config.device.name}: {config.device.why}; seed {config.seed}")
    show.begin(f"load weights: {config.weights}")
    model, layout, packed = load(config.weights, config.model, config.positions, config.cache / "weights", config.seed)
    check_positions(config.timing, model)
    return Lab(config, open_device(config), model, layout, packed, store, show)


def open_device(config: RunConfig) -> Device:
    """The device that `config` chose."""
    if config.host:
        from common.devices.host import HostDevice

        return HostDevice(config.cache / "kernels", config.seed, config.host.workers, config.host.timeout_s)
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
                report = getattr(error, "log", "") or getattr(error, "report", "")
                return replace(case, status=STATUS[type(error)], reason=str(error), report=report)

        return guarded

    return decorate


@_step("compile")
def compile_stack(lab: Lab, case: Case) -> Case:
    """Build the text of the stack and compile it for the device."""
    case = replace(case, source=source_of(lab, case.stack.variants, case.stack))
    return replace(case, program=lab.device.compile(case.source))


@_step("inspect")
def inspect_stack(lab: Lab, case: Case) -> Case:
    """Read what NVRTC makes of the text for every arch it supports; needs no GPU."""
    archs = [arch for arch in ARCHS if int(arch.removeprefix("sm_")) >= case.source.min_arch]
    try:
        cubins = compile_all(case.source.text, archs, case.source.name, lab.config.cache / "cubins")
        return replace(case, resources={arch: resources(cubin, arch) for arch, cubin in cubins.items()})
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
            verdict = validate(session, weights, lab.model, scenarios(lab.model, seed, weights, quick), seed)
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
    from experiments.timing import Racer, race

    stack, parent = case.stack, lab.device.compile(source_of(lab, case.stack.parent, case.stack))
    with closing(open_session(lab, case.program)) as child, closing(open_session(lab, parent)) as base:
        racers = Racer(stack.variants, child), Racer(stack.parent, base)
        latencies, generation = race(*racers, lab.config.timing, lab.config.seed, lab.show.detail)
    return replace(case, latencies=tuple(latencies), generation=generation)


def record(lab: Lab, case: Case) -> Row:
    """Append the case to the store; returns what the table shows of it."""
    found = {
        "kind": "run",
        "status": case.status,
        "reason": case.reason,
        "report": case.report,
        "verdict": case.verdict,
        "counts": case.counts and case.counts.as_dict(),
        "resources": case.resources,
        "latencies": case.latencies,
        "generation": case.generation,
    }
    return _row(case, append(lab, case, found))


def append(lab: Lab, case: Case, found: Mapping[str, Any]) -> str:
    """Write one record, `found` and what it was found with; returns its id."""
    device = lab.device.describe()
    source_sha = case.source.sha if case.source else ""
    about = {
        "key": key(source_sha, case.stack.knobs, lab.model, lab.packed.sha, device["device"], device["compiler"]),
        "variant": case.stack.name,
        "stack": case.stack.variants,
        "parent": case.stack.parent,
        "knobs": case.stack.knobs,
        "source_sha": source_sha,
        "model": lab.model,
        "weights": {"sha": lab.packed.sha, "source": Path(lab.packed.source).name},
        "device": device,
        "threads": lab.config.threads,
        "blocks": case.blocks,
        "seed": lab.config.seed,
        "provenance": provenance(),
    }
    return lab.store.append(about | found)


def source_of(lab: Lab, variants: tuple[str, ...], stack: Stack) -> Source:
    """The flattened text of `variants` (the stack itself or its parent) with the stack's knobs."""
    known = read_catalog().variants
    return build([known[name] for name in variants], lab.model, lab.config.threads, stack.knobs)


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


def _row(case: Case, name: str) -> Row:
    verdict, counts = case.verdict, case.counts
    loads = {width: 0 for data in ("weights", "kv") for width in (counts.bytes_by_width(data) if counts else {})}
    for width in loads:
        loads[width] = sum(counts.bytes_by_width(data).get(width, 0) for data in ("weights", "kv"))
    return Row(
        variant=case.stack.name,
        stack=case.stack.variants,
        verdict=case.status,
        reason=case.reason,
        error=verdict and verdict.worst.error,
        stage=verdict and verdict.worst.stage,
        barriers=counts and counts.total("grid_barriers"),
        loads=loads,
        activations=counts and counts.loaded("activations"),
        facts={arch: Fact(found.registers, found.spill_bytes) for arch, found in case.resources.items()},
        timed=tuple(map(_timed, case.latencies)),
        generation=case.generation and _timed(case.generation),
        record=name,
    )


def _timed(found: Measurement) -> Timed:
    seconds = found.seconds
    return Timed(
        position=found.position,
        latency=1e6 * seconds.median,
        interval=(1e6 * seconds.low, 1e6 * seconds.high),
        gbps=found.bandwidth / 1e9,
        ceiling=100 * found.of_ceiling,
        verdict=found.verdict or "-",
    )

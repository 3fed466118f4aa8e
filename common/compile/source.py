"""Source text of a kernel, composed of a stack of variants: the same for CuPy, the PTX device and the record."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from common import ROOT
from common.compile.target import declare_knobs, lacking
from common.errors import LabError, Refused
from common.model.expressions import Scratch
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.stages import FIRST, LAST, LAYER, MAX_THREADS, STAGES, WARP
from common.stacks.variant import LOWEST_ARCH, Variant

KERNEL = ROOT / "common" / "kernel"
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"\s*$')

BY_STAGE = ("launches", "graph", "pdl")  # launches of a text with a kernel per stage

Knobs = Mapping[str, Mapping[str, int | str]]


@dataclass(frozen=True)
class Source:
    """One kernel, ready for any compiler.

    stack    innermost first, without `baseline`
    threads  of a block, without loader warps
    launch   cooperative: one kernel, whose blocks the driver keeps resident together; plain: one kernel whose grid the
             device checks for co-residency; launches: a kernel per stage; graph: these kernels as one CUDA graph; pdl:
             the same, each launched before the one in front of it has ended (programmatic dependent launch)
    tokens_per_launch   steps of a launch: its tokens, unless a step has several
    blocks_per_sm   of the grid
    min_arch compute capability, ten times, as in sm_XX
    text     includes no file; `sha` is its sha256 in hex
    loader_warps  of a block, in addition to `threads`
    scratch  regions declared by its variants
    trace    blocks store time stamps of each stage
    shared_knobs  names of the knobs that decide a block's shared memory
    chosen   {`knob=value`: min_arch} of chosen values with a min_arch of their own
    tokens_per_step  at neighbouring positions; all but the first are drafts, kept where the kernel chooses the same
    """

    stack: tuple[str, ...]
    model: Model
    threads: int
    knobs: Knobs
    launch: str
    tokens_per_launch: int
    blocks_per_sm: int
    min_arch: int
    text: str = field(repr=False)
    loader_warps: int = 0
    scratch: Scratch = field(default_factory=dict, repr=False)
    trace: bool = False
    shared_knobs: tuple[str, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)
    tokens_per_step: int = 1

    @cached_property
    def layout(self) -> Layout:
        """The layout of its buffers."""
        return Layout(self.model, self.scratch, self.trace, self.tokens_per_step)

    @property
    def sha(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def launched_threads(self) -> int:
        """Threads of a block, loader warps included."""
        return self.threads + WARP * self.loader_warps

    @property
    def by_graph(self) -> bool:
        """True if the kernels of a step are replayed as one CUDA graph."""
        return self.by_stage and self.launch != "launches"

    @property
    def by_stage(self) -> bool:
        """True if the text has a kernel per stage, `stage_<name>`, instead of the one kernel `decode`."""
        return self.launch in BY_STAGE

    def refuse_target(self, arch: int, gpu: str, other: str) -> None:
        """Raise Refused for a target that is too old; gpu: the target in words; other: how to choose another one."""
        if self.min_arch > arch:
            chosen = [word for word, needed in self.chosen.items() if needed > arch]
            remedy = f"leave out {' '.join(chosen)}" if chosen else "remove the variant from the stack"
            lacks = f", without {lacking(self.min_arch, arch)}" if lacking(self.min_arch, arch) else ""
            cause = f"{self.name} needs sm_{self.min_arch} and {gpu} is sm_{arch}{lacks}"
            raise Refused(cause, f"{remedy}, or {other}")

    def refuse_shared(self, needed: int, most: int, gpu: str) -> None:
        """Raise Refused if a block needs more shared memory than `most` bytes, the limit of `gpu` (in words)."""
        if needed > most:
            knobs = " or ".join((*self.shared_knobs, "threads"))
            raise Refused(
                f"{self.name} needs {needed} B of shared memory a block, and {gpu} allows {most} B",
                f"lower {knobs}, or leave a variant out",
            )

    @property
    def name(self) -> str:
        return "+".join(self.stack) or "baseline"

    def facts(self) -> dict[str, Any]:
        """Fields of the kernel in a record."""
        return {
            "variant": self.name,
            "stack": self.stack,
            "knobs": self.knobs,
            "model": self.model,
            "threads": self.threads,
            "source_sha": self.sha,
        }


def build(
    stack: Sequence[Variant], model: Model, threads: int = 256, knobs: Knobs | None = None, trace: bool = False
) -> Source:
    """Compose `stack` (innermost first; `baseline` is implied) into one text.

    knobs: per variant the value of each of its knobs; an int becomes a constant `knob::<variant>::<knob>`, a choice a
    set of `knob::<variant>::<knob>_is_<choice>` booleans. A knob with `sets` also sets that field of the Source.
    trace: every block stores time stamps of each stage.

    The line directives name files relative to the repository, so that compilers, profilers and debuggers show the
    variant's own lines.
    """
    knobs = knobs or {}
    mixins = [v for v in stack if v.name != "baseline"]
    chosen = _chosen(mixins, knobs)
    settings: dict[str, int | str] = {"launch": "cooperative"}
    for variant in mixins:
        if variant.launch != "cooperative":
            settings["launch"] = variant.launch
        values = knobs.get(variant.name, {})
        settings |= {knob.sets: values[knob.name] for knob in variant.knobs if knob.sets and knob.name in values}
    blocks_per_sm = int(settings.get("blocks_per_sm", 1))
    kernel = "Baseline<Kernel>"
    for variant in mixins:
        kernel = f"{variant.mixin}<{kernel}>"
    if trace:
        kernel = f"Traced<{kernel}>"
    loader_warps = max([0, *(v.loader_warps for v in mixins)])
    if (all_threads := threads + WARP * loader_warps) > MAX_THREADS:
        cause = f"{'+'.join(v.name for v in mixins)} needs {all_threads} threads a block, with those of loader warps"
        raise Refused(f"{cause}, and a GPU allows {MAX_THREADS}", "lower threads, or leave a variant out")
    if settings["launch"] in BY_STAGE:
        name = "DEPENDENT_ENTRY" if settings["launch"] == "pdl" else "STAGE_ENTRY"
        entry = [f"{name}(Kernel, {threads}, {stage})" for stage in STAGES]
        entry += ["SHARED_BYTES(Kernel)"]
    else:
        entry = [f"KERNEL_ENTRY(Kernel, {all_threads}, {blocks_per_sm})"]
    files = [ROOT / "variants" / "baseline.cu", *(v.file for v in mixins), *([KERNEL / "trace.cuh"] if trace else [])]
    scratch = _merged(mixins)
    tokens_per_step = int(settings.get("tokens_per_step", 1))
    layout = Layout(model, scratch, trace, tokens_per_step)
    if layout.scaled:
        files.insert(0, KERNEL / "scaled.cuh")
    return Source(
        stack=tuple(v.name for v in mixins),
        model=model,
        threads=threads,
        knobs={v.name: dict(knobs.get(v.name, {})) for v in mixins},
        launch=str(settings["launch"]),
        tokens_per_launch=int(settings.get("tokens_per_launch", 1)),
        blocks_per_sm=blocks_per_sm,
        min_arch=max([LOWEST_ARCH, *(v.min_arch for v in mixins), *chosen.values()]),
        text=kernel_text(
            layout,
            threads,
            files,
            [f"struct Kernel : {kernel} {{}};", *entry],
            constants=[declare_knobs(v, knobs.get(v.name, {}), model, tokens_per_step) for v in mixins],
            loader_warps=loader_warps,
        ),
        loader_warps=loader_warps,
        scratch=scratch,
        trace=trace,
        shared_knobs=tuple(knob.name for v in mixins for knob in v.knobs if knob.shared),
        chosen=chosen,
        tokens_per_step=tokens_per_step,
    )


def _chosen(stack: Sequence[Variant], knobs: Knobs) -> dict[str, int]:
    """{`knob=value`: compute capability, ten times} of chosen values with a min_arch of their own."""
    values = [(knob, str(knobs.get(variant.name, {}).get(knob.name))) for variant in stack for knob in variant.knobs]
    return {f"{knob.name}={value}": knob.min_arch[value] for knob, value in values if value in knob.min_arch}


def _merged(stack: Sequence[Variant]) -> Scratch:
    """The scratch regions of all variants; equal ones are one region. Raises LabError if two of one name differ."""
    found: dict[str, tuple[str, ...]] = {}
    for variant in stack:
        for name, shape in variant.scratch.items():
            if found.setdefault(name, shape) != shape:
                raise LabError(
                    f"{variant.name} declares scratch.{name} as {list(shape)}, another variant as {list(found[name])}",
                    "rename one of the two, or declare it in a variant that both require",
                )
    return found


def kernel_text(
    layout: Layout,
    threads: int,
    files: Sequence[Path],
    entry: Sequence[str],
    constants: Sequence[str] = (),
    loader_warps: int = 0,
) -> str:
    """One text: the constants of `layout` and of the block, then `constants`; `files` with their includes; `entry`."""
    seen: set[Path] = set()
    lines = [
        '#line 1 "constants"',
        "using size_t = decltype(sizeof(0));",
        f"constexpr int block_threads = {threads};",
        f"constexpr int loader_warps = {loader_warps};",
        layout.declare(),
        *constants,
        *(line for file in files for line in flatten(file, seen)),
        '#line 1 "entry"',
        *entry,
        "",
    ]
    return "\n".join(lines)


def flatten(file: Path, seen: set[Path]) -> Iterable[str]:
    """The lines of `file` with each quoted include replaced by the file, once. `seen` grows.

    An include is searched beside the file, then from the repository's root; one found in neither place stays.
    """
    file = file.resolve()
    if file in seen:
        return
    seen.add(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name
    yield f'#line 1 "{name}"'
    for number, line in enumerate(lines, 1):
        if line.startswith("#pragma once"):
            yield ""
            continue
        match = _INCLUDE.match(line)
        found = match and next((p for p in (file.parent / match[1], ROOT / match[1]) if p.exists()), None)
        if not found:
            yield line
            continue
        yield from flatten(found, seen)
        yield f'#line {number + 1} "{name}"'


def launches(source: Source, steps: int = 1) -> list[tuple[int, int]]:
    """Every launch of `steps` steps: (number of the kernel, its last argument).

    With a kernel per stage: (stage, layer); else (0, tokens to decode).
    """
    if not source.by_stage:
        most = source.tokens_per_launch
        return [(0, min(steps - done, most)) for done in range(0, steps, most)]
    layers = ((stage, layer) for layer in range(source.model.layers) for stage in LAYER)
    order = (*((stage, 0) for stage in FIRST), *layers, *((stage, 0) for stage in LAST))
    return [(STAGES.index(stage), layer) for stage, layer in order] * steps

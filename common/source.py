"""From a stack of variants to one text: the same for CuPy, for the host compiler and for the record."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.catalog import Variant
from common.errors import LabError
from common.layout import Layout
from common.model import LAYER_STAGES, STAGES, Model

ROOT = Path(__file__).resolve().parent.parent
DEVICE = ROOT / "common" / "device"
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"\s*$')

Knobs = Mapping[str, Mapping[str, int | str]]


@dataclass(frozen=True)
class Source:
    """One kernel, ready for any compiler.

    stack    innermost first, without `baseline`
    launch   cooperative: one kernel, whose blocks the driver keeps on the GPU together; plain: one kernel that sees to
             that itself; launches: a kernel per stage; graph: the same kernels, replayed as one CUDA graph
    tokens_per_launch, blocks_per_sm   what the device needs to know beside the text
    min_arch compute capability, ten times, as in sm_XX
    text     includes no file; `sha` is its sha256 in hex
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

    @property
    def sha(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def by_stage(self) -> bool:
        """Whether the text has a kernel per stage, `stage_<name>`, instead of the one kernel `decode`."""
        return self.launch in ("launches", "graph")

    @property
    def name(self) -> str:
        return "+".join(self.stack) or "baseline"


def build(
    stack: Sequence[Variant],
    model: Model,
    threads: int = 256,
    knobs: Knobs | None = None,
    by_stage: bool = False,
    trace: bool = False,
) -> Source:
    """Compose `stack` (innermost first; `baseline` is implied) into one text.

    knobs: per variant the value of each of its knobs; an int becomes a constant `knob::<variant>::<knob>`, a choice a
    set of `knob::<variant>::<knob>_is_<choice>` booleans. A knob that `sets` something of the launch sets it.
    by_stage: make a kernel per stage of any stack, to test or time its stages one by one.
    trace: let every block stamp when it begins and ends each stage; the session needs `Layout(model, trace=True)`.

    The line directives name files relative to the repository, so that compilers, profilers and debuggers show the
    variant's own lines. Raises LabError when a file is not found.
    """
    knobs = knobs or {}
    mixins = [v for v in stack if v.name != "baseline"]
    settings: dict[str, int | str] = {"launch": "launches" if by_stage else "cooperative"}
    for variant in mixins:
        if not by_stage and variant.launch != "cooperative":
            settings["launch"] = variant.launch
        values = knobs.get(variant.name, {})
        settings |= {knob.sets: values[knob.name] for knob in variant.knobs if knob.sets and knob.name in values}
    blocks_per_sm = int(settings.get("blocks_per_sm", 1))
    kernel = "Baseline<Kernel>"
    for variant in mixins:
        kernel = f"{variant.mixin}<{kernel}>"
    if trace:
        kernel = f"Traced<{kernel}>"
    constants = [
        "using size_t = decltype(sizeof(0));",
        f"enum class Stage {{ {', '.join(STAGES)} }};",
        f"constexpr int block_threads = {threads};",
        Layout(model, trace).declare(),
        *(_declare_knobs(v, knobs.get(v.name, {})) for v in mixins),
    ]
    if settings["launch"] in ("launches", "graph"):
        entry = [f"STAGE_ENTRY(Kernel, {threads}, {stage})" for stage in STAGES]
        entry += [f"STAGE_TABLE(Kernel, {threads}, {', '.join(f'stage_{stage}' for stage in STAGES)})"]
    else:
        entry = [f"KERNEL_ENTRY(Kernel, {threads}, {blocks_per_sm})"]
    seen: set[Path] = set()
    files = [ROOT / "variants" / "baseline.cu", *(v.file for v in mixins), *([DEVICE / "trace.cuh"] if trace else [])]
    text = "\n".join(
        [
            '#line 1 "constants"',
            *constants,
            *(line for file in files for line in flatten(file, seen)),
            '#line 1 "entry"',
            f"struct Kernel : {kernel} {{}};",
            *entry,
            "",
        ]
    )
    return Source(
        stack=tuple(v.name for v in mixins),
        model=model,
        threads=threads,
        knobs={v.name: dict(knobs.get(v.name, {})) for v in mixins},
        launch=str(settings["launch"]),
        tokens_per_launch=int(settings.get("tokens_per_launch", 1)),
        blocks_per_sm=blocks_per_sm,
        min_arch=max([75, *(v.min_arch for v in mixins)]),
        text=text,
    )


def flatten(file: Path, seen: set[Path]) -> Iterable[str]:
    """The lines of `file` with each quoted include replaced by the file, once. `seen` grows.

    An include is looked for beside the file, then from the repository's root. One that is found in neither belongs to
    the host runtime and stays, for the host compiler to find.
    """
    file = file.resolve()
    if file in seen:
        return
    seen.add(file)
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}", "restore the file from git") from error
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


def launches(source: Source) -> list[tuple[int, int]]:
    """The (stage, layer) of every launch of one step, where the text has a kernel per stage."""
    order: list[tuple[str, int]] = [("embed", 0)]
    order += [(stage, layer) for layer in range(source.model.layers) for stage in LAYER_STAGES]
    order += [("final_norm", 0), ("lm_head", 0), ("argmax", 0)]
    return [(STAGES.index(stage), layer) for stage, layer in order]


def _declare_knobs(variant: Variant, values: Mapping[str, int | str]) -> str:
    """The knobs of one variant as C++ constants."""
    choices = {knob.name: knob.choices for knob in variant.knobs}
    rows = []
    for name, value in values.items():
        if isinstance(value, str):
            rows += [f"constexpr bool {name}_is_{choice} = {str(choice == value).lower()};" for choice in choices[name]]
        else:
            rows.append(f"constexpr int {name} = {value};")
    return f"namespace knob::{variant.name} {{ {' '.join(rows)} }}"

"""Registers, memory and instructions of a kernel for several architectures, without a GPU."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common.compile.nvrtc import compile_all
from common.compile.sass import Resources, resources_all
from common.compile.source import Source
from common.model.stages import STAGES

BUILD = "build"  # kind of the records of a compilation without a run


def inspect(source: Source, archs: Sequence[str], cache: Path) -> dict[str, Resources]:
    """Resources by arch, for those of `archs` that the source supports. Raises CompileError, or LabError without tools.

    The kernels of a text with one kernel per stage are reported as one, `stage_*`: the largest registers, stack and
    memory of all of them, and the sum of their spills and instructions.
    """
    fit = [arch for arch in archs if int(arch.removeprefix("sm_")) >= source.min_arch]
    cubins = compile_all(source.text, fit, source.name, cache)
    if not source.by_stage:
        return resources_all(cubins, cache_dir=cache)
    stages = [resources_all(cubins, f"stage_{stage}", cache) for stage in STAGES]
    return {arch: _together([found[arch] for found in stages]) for arch in cubins}


def _together(kernels: Sequence[Resources]) -> Resources:
    def most(field: str) -> int:
        return max(getattr(kernel, field) for kernel in kernels)

    return Resources(
        arch=kernels[0].arch,
        kernel="stage_*",
        registers=most("registers"),
        spill_bytes=sum(kernel.spill_bytes for kernel in kernels),
        stack=most("stack"),
        local=most("local"),
        shared=most("shared"),
        histogram=dict(sorted(sum((Counter(kernel.histogram) for kernel in kernels), Counter()).items())),
    )

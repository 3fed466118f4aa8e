"""Cubins of Qwen3-0.6B's kernels, for tests of what NVRTC makes of them."""

from dataclasses import dataclass
from pathlib import Path

from composed import Composed
from sampled import sampled

from common.compile.nvrtc import ARCHS, compile_cubin
from common.compile.sass import Resources, resources
from common.compile.source import Source
from common.model.shapes import Model

QWEN = Model("qwen3_0_6b", 1024, 3072, 28, 16, 8, 128, 151936, 2048, 1e6, 1e-6, True)
OLD_AND_NEW = ("sm_80", "sm_90")


def fitting(source: Source) -> list[str]:
    """One arch of OLD_AND_NEW that the source supports, drawn once a run."""
    return sampled([arch for arch in OLD_AND_NEW if int(arch.removeprefix("sm_")) >= source.min_arch], 1)


@dataclass(frozen=True)
class Nvrtc:
    """Cubins, cached by their source for all tests of a run."""

    cache: Path

    def cubins(self, source: Source, archs=ARCHS) -> dict[str, bytes]:
        fit = [arch for arch in archs if int(arch.removeprefix("sm_")) >= source.min_arch]
        return {arch: compile_cubin(source.text, arch, source.name, self.cache) for arch in fit}

    def resources(self, source: Source, kernel: str, archs=ARCHS) -> list[Resources]:
        return [resources(cubin, arch, kernel, self.cache) for arch, cubin in self.cubins(source, archs).items()]

    def decode(self, names: str, **given) -> list[Resources]:
        """The one kernel of a stack of Qwen3-0.6B, for an old or a newer arch."""
        source = Composed(tuple(names.split()), given).source(QWEN)
        return self.resources(source, "decode", fitting(source))

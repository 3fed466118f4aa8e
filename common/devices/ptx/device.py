"""PTX device: NVRTC compiles the text for a GPU that need not be there, and a CPU executes the PTX.

See README.md; for the methods, common.devices.protocol.
"""

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common.compile.nvrtc import compile_ptx, version
from common.compile.source import Source
from common.devices.guarded import GuardedBuffer
from common.devices.ptx.dependent import check_waits
from common.devices.ptx.library import library
from common.devices.ptx.program import Machine, PtxProgram
from common.devices.ptx.session import CompiledPtx, PtxSession, at_end
from common.errors import Refused
from common.model.layout import MAX_BLOCKS
from common.model.stages import STAGES

BLOCKS = 8  # default grid: enough blocks for an uneven share of heads and rows


class PtxDevice:
    """A CPU that executes PTX.

    cache: folder of PTX and of the executor itself. arch: the target, 90 for sm_90. seed: of every order in the first
    launch of a session; each later launch uses the next seed. races: report unordered conflicting accesses. timeout:
    limit of one launch in seconds; a deadlock is detected without it. note: called when the executor is compiled.
    Raises LabError if NVRTC cannot be loaded.
    """

    name = "ptx"
    sessions: type[PtxSession] = PtxSession

    def __init__(
        self,
        cache: Path,
        arch: int = 90,
        seed: int = 0,
        races: bool = False,
        timeout: float = 120.0,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.cache, self.arch, self.seed, self.races, self.timeout = Path(cache), arch, seed, races, timeout
        self._note = note
        version()
        self._machine: Machine | None = None
        self._weights: tuple[torch.Tensor, GuardedBuffer] | None = None

    def describe(self) -> dict[str, Any]:
        return {
            "device": self.name,
            "arch": platform.machine(),
            "cores": os.cpu_count(),
            "target": f"sm_{self.arch}",
            "races": self.races,
            "compiler": f"NVRTC {version()} sm_{self.arch}",
        }

    def compile(self, source: Source) -> CompiledPtx:
        """Raises Refused for a target older than source.min_arch, and CompileError."""
        source.refuse_target(self.arch, "the target", f"give device.arch=sm_{source.min_arch}")
        # compute_90 gives sm_90's PTX without ptxas, whose code nothing here executes: a third of NVRTC's time less.
        text = compile_ptx(source.text, f"compute_{self.arch}", cache_dir=self.cache)
        self._machine = self._machine or Machine(library(self.cache, self._note))
        program = PtxProgram(self._machine, text, "decode.cu")
        for stage in STAGES if source.launch == "pdl" else ():
            check_waits(program.kernel(f"stage_{stage}").rows(), f"stage_{stage}")
        return CompiledPtx(source, program)

    def session(
        self, program: CompiledPtx, weights: torch.Tensor, blocks: int | None = None, beside: PtxSession | None = None
    ) -> Any:
        """As Device.session. All sessions with these weights share one copy of them."""
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"blocks={blocks} is not in 1..{MAX_BLOCKS}", f"give blocks=N with N in 1..{MAX_BLOCKS}")
        if self._weights is None or self._weights[0] is not weights:
            guarded = GuardedBuffer(program.source.layout.weights_size, torch.bfloat16, at_end(self.seed))
            guarded.tensor.copy_(weights)
            guarded.freeze()
            self._weights = (weights, guarded)
        return self.sessions(self, program, self._weights[1], blocks, beside)

"""The host device: the CUDA text compiled as C++ and executed on the CPU, stricter than a GPU.

See common/host/runtime.hpp for the execution model. Every buffer lies between canaries that are NaN in bf16 and in fp32;
what a kernel has not written is NaN too.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.counters import FIELDS, Counts
from common.errors import CompileError, Crashed, Hung, LabError, Refused
from common.layout import MAX_BLOCKS, Layout
from common.model import STAGES
from common.source import Source, launches

RUNTIME = Path(__file__).resolve().parent.parent / "host"
UNITS = ("block.cpp", "grid.cpp")
FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", "-march=native", "-ffp-contract=off", "-fno-math-errno")
WARNINGS = ("-Wall", "-Werror")
GUARD = 4096  # bytes of canary on each side of a buffer
CANARY = 0xFFA5 - 0x10000  # as int16; 0xFFA5 is NaN as bf16, and NaN as fp32 when repeated
BLOCKS = 8  # default grid: enough blocks that heads and rows are spread unevenly
STUCK, TIMED_OUT, TRAPPED, CORRUPTED = 1, 2, 3, 4


class _Launch(ctypes.Structure):
    """`host::Launch` of common/host/machine.hpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weights", "cache", "scratch", "state")),
        *((name, ctypes.c_int) for name in ("steps", "stage", "layer", "blocks")),
        ("workers", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("timeout", ctypes.c_double),
        ("counts", ctypes.c_void_p),
        ("report", ctypes.c_char_p),
        ("report_size", ctypes.c_size_t),
    ]


class _Guarded:
    """A tensor between two canaries."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        pad, words = GUARD // 2, size * dtype.itemsize // 2
        self._raw = torch.empty(pad + words + pad, dtype=torch.int16)
        self._ends = (self._raw[:pad], self._raw[-pad:])
        for end in self._ends:
            end.fill_(CANARY)
        self.tensor = self._raw[pad : pad + words].view(dtype)

    def intact(self) -> bool:
        return all(bool((end == CANARY).all()) for end in self._ends)


@dataclass(frozen=True)
class HostProgram:
    """A shared library and the source it was made from."""

    source: Source
    library: Path


class HostDevice:
    """Compiles and runs kernels on the CPU.

    seed: of the order in which lanes, warps and blocks run; each launch of a session draws the next order from it.
    workers: blocks that run at the same time; None takes one for small models, where every run is then a function of the
    seed, and all cores for models of over 10 million weights. timeout: seconds until a launch that never waits is given up
    (one that waits in vain is found out at once). cache: the folder of compiled kernels.
    """

    name = "host"

    def __init__(self, cache: Path, seed: int = 0, workers: int | None = None, timeout: float = 120.0) -> None:
        self.cache, self.seed, self.workers, self.timeout = Path(cache), seed, workers, timeout
        self._weights: tuple[torch.Tensor, _Guarded] | None = None

    def describe(self) -> dict[str, Any]:
        return {"device": "host", "arch": platform.machine(), "cores": os.cpu_count(), "compiler": self.compiler()}

    def compiler(self) -> str:
        """First line of `g++ --version`. Raises LabError when there is no g++."""
        return _run([_gxx(), "--version"]).stdout.splitlines()[0]

    def compile(self, source: Source) -> "HostProgram":
        """Compiled once per text, compiler and CPU. Raises CompileError."""
        objects = [self._object((RUNTIME / unit).read_text(), unit, ()) for unit in UNITS]
        kernel = self._object(source.text, "kernel.cpp", WARNINGS)
        library = self.cache / f"{_sha(*(path.name for path in (kernel, *objects)))}.so"
        return HostProgram(source, self._make(library, [_gxx(), "-shared", "-pthread", *map(str, (kernel, *objects))]))

    def session(self, program: HostProgram, layout: Layout, weights: torch.Tensor, blocks: int | None = None) -> "HostSession":
        blocks = BLOCKS * program.source.blocks_per_sm if blocks is None else blocks
        if not 1 <= blocks <= MAX_BLOCKS:
            raise Refused(f"a grid of {blocks} blocks", f"choose 1 to {MAX_BLOCKS} blocks")
        if self._weights is None or self._weights[0] is not weights:
            guarded = _Guarded(layout.weights_size, torch.bfloat16)
            guarded.tensor.copy_(weights)
            self._weights = (weights, guarded)
        workers = self.workers or (1 if layout.model.matrix_weights < 10_000_000 else os.cpu_count() or 1)
        return HostSession(program, layout, self._weights[1], blocks, workers, self.seed, self.timeout)

    def _object(self, text: str, unit: str, warnings: tuple[str, ...]) -> Path:
        names = ", ".join(f'"{stage}"' for stage in STAGES)
        options = [*FLAGS, *warnings, f"-I{RUNTIME}", f"-DLAB_STAGE_NAMES={names}"]
        if platform.machine() == "x86_64":
            options.append("-mtls-dialect=gnu2")  # thread-locals of a loaded library without a call
        headers = "".join(path.read_text() for path in sorted(RUNTIME.glob("*.hpp")))
        path = self.cache / f"{_sha(text, headers, *FLAGS, *warnings, self.compiler(), _cpu())}.o"
        if path.exists():
            return path
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / unit).write_text(text)
            return self._make(path, [_gxx(), *options, "-c", str(Path(folder) / unit)])

    def _make(self, target: Path, command: list[str]) -> Path:
        """Run `command` with its output going to `target`, which appears whole or not at all."""
        if target.exists():
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(f".{os.getpid()}.part")
            _run([*command, "-o", str(part)])
            part.rename(target)
        except OSError as error:
            raise LabError(f"cannot write {target}: {error.strerror}", "set cache=FOLDER to one you can write") from error
        return target


class HostSession:
    """One compiled kernel and its buffers on the host device; the verbs are those of common.devices.Session."""

    def __init__(
        self, program: HostProgram, layout: Layout, weights: _Guarded, blocks: int, workers: int, seed: int, timeout: float
    ) -> None:
        self.layout, self.blocks = layout, blocks
        self._source, self._library = program.source, ctypes.CDLL(str(program.library))
        self._weights, self._workers, self._seed, self._timeout = weights, workers, seed, timeout
        self._cache = _Guarded(layout.cache.size, torch.bfloat16)
        self._scratch = _Guarded(layout.scratch_size, torch.float32)
        self._state = _Guarded(layout.state_size, torch.int32)
        self._counts: np.ndarray | None = None
        self._position = 0
        self._lost = False

    def reset(self, ids: Sequence[int], position: int, cache: torch.Tensor | None = None, forced: int = 0) -> None:
        history = self._cache.tensor.view(self.layout.cache.shape)
        history.fill_(torch.nan)
        if cache is not None:
            history[..., :position, :] = cache[..., :position, :]
        self._scratch.tensor.fill_(torch.nan)
        self._state.tensor.copy_(self.layout.initial_state(ids, position, forced))
        self._position = position

    def run(self, steps: int = 1) -> None:
        self.layout.check_room(self._position, steps)
        self._position += steps
        self._counts = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
        if self._source.by_stage:
            for stage, layer in launches(self._source) * steps:
                self._launch(stage=stage, layer=layer)
            return
        for done in range(0, steps, self._source.tokens_per_launch):
            self._launch(steps=min(steps - done, self._source.tokens_per_launch))

    def run_stage(self, stage: str, layer: int = 0) -> None:
        """One stage of one layer on the buffers as they are; the source must have been built by stage."""
        self._counts = np.zeros((len(STAGES), len(FIELDS)), np.uint64)
        self._launch(stage=STAGES.index(stage), layer=layer)

    def write_scratch(self, values: torch.Tensor) -> None:
        """Overwrite scratch: float32, [layout.scratch_size]."""
        self._scratch.tensor.copy_(values)

    def write_cache(self, values: torch.Tensor) -> None:
        """Overwrite the cache: bf16, the layout's cache shape."""
        self._cache.tensor.view(self.layout.cache.shape).copy_(values)

    def scratch(self) -> torch.Tensor:
        return self._scratch.tensor.clone()

    def cache(self) -> torch.Tensor:
        return self._cache.tensor.view(self.layout.cache.shape).clone()

    def state(self) -> torch.Tensor:
        return self._state.tensor.clone()

    def counts(self) -> Counts | None:
        return None if self._counts is None else Counts(self._counts.copy())

    def close(self) -> None:
        if self._lost:
            return  # threads of a launch that was given up may still run this library's code
        handle = self._library._handle
        del self._library
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))

    def _launch(self, steps: int = 1, stage: int = 0, layer: int = 0) -> None:
        if self._lost:
            raise Crashed("the session was given up after a launch that never ended", "start the run again")
        report = ctypes.create_string_buffer(1 << 16)
        launch = _Launch(
            *(buffer.tensor.data_ptr() for buffer in (self._weights, self._cache, self._scratch, self._state)),
            steps,
            stage,
            layer,
            self.blocks,
            self._workers,
            self._seed,
            self._timeout,
            self._counts.ctypes.data,
            ctypes.cast(report, ctypes.c_char_p),
            len(report),
        )
        self._seed += 1
        status = self._library.lab_launch(ctypes.byref(launch))
        text = report.value.decode(errors="replace")
        if status == STUCK:
            raise Hung("nobody can go on", "see the report: who waits where", text)
        if status == TIMED_OUT:
            self._lost = True
            raise Hung(f"still running after {self._timeout:g} s", "see the report, or raise device.timeout_s", text)
        if status == TRAPPED:
            raise Crashed(f"the kernel trapped: {text}", "see the place it names")
        if status == CORRUPTED:
            raise Crashed(text, "look for an index beyond the struct Shared")
        for name in ("weights", "cache", "scratch", "state"):
            if not getattr(self, f"_{name}").intact():
                raise Crashed(f"the kernel wrote outside the {name} buffer", "look for an index beyond its end")


def _gxx() -> str:
    found = shutil.which("g++")
    if not found:
        raise LabError("the host device needs g++ and there is none", "install it (Debian: apt install g++), or use device=cuda")
    return found


def _cpu() -> str:
    """What -march=native depends on: a cache on a shared disk must not mix machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _sha(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise CompileError(f"g++ failed: {first}", "read the compiler's whole output with debug=true", done.stderr)
    return done

"""Compilation by NVRTC, with the same options for CuPy's RawModule on a GPU and for cubins on any machine."""

import functools
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common.cache.files import cached
from common.errors import CompileError, LabError

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def options(arch: str | None = None) -> tuple[str, ...]:
    """NVRTC's options. None: for RawModule; `sm_90`: all, with the ones that RawModule adds by itself.

    RawModule appends -ftz=true, its device's -arch=sm_XX, --device-as-default-execution-space (it refuses a second one)
    and include folders, which a flattened text does not need. Both lists give the same code.
    Products and sums are fused only by an explicit fmaf, so that variants can be compared bit for bit.
    """
    own = ("-std=c++17", "-lineinfo", "--fmad=false")
    return own if arch is None else (*own, "-ftz=true", f"-arch={arch}", "--device-as-default-execution-space")


@functools.cache
def version() -> str:
    """The compiler's full version, such as 13.5.37. Raises LabError where NVRTC cannot be loaded."""
    nvrtc = _nvrtc()
    for line in _build("", "version.cu", (), nvrtc.getPTX).decode().splitlines():
        if ", V" in line:  # "// Cuda compilation tools, release 13.5, V13.5.37"
            return line.rpartition(", V")[2].strip()
    return ".".join(map(str, nvrtc.getVersion()))


def check_driver(version: int) -> None:
    """Raise LabError for a driver too old for NVRTC's output. version: the driver's CUDA, such as 12040 for 12.4."""
    major, minor = _nvrtc().getVersion()
    if major > version // 1000:
        raise LabError(
            f"NVRTC {major}.{minor} compiles for CUDA {major}, and the driver is of CUDA {version // 1000}."
            f"{version % 1000 // 10}: it cannot load its kernels",
            "update the driver, or install with make CUDA=12, which needs a torch for CUDA 12 or the CPU (any other "
            "brings an NVRTC of its own)",
        )


def compile_cubin(text: str, arch: str, name: str = "decode.cu", cache_dir: Path | None = None) -> bytes:
    """Compile `text` for `arch` (sm_80, ...) without a driver.

    `name` is the file name of the lines before the first #line. `cache_dir` keeps cubins by the sha256 of the text, the
    options and the compiler's version; None compiles anew.
    Raises CompileError with the log, and LabError where NVRTC cannot be loaded.
    """
    # CuPy drops the last byte, but nvdisasm and cuobjdump need it.
    return _cached(text, arch, name, cache_dir, "cubin", lambda nvrtc, program: nvrtc.getCUBIN(program) + b"\0")


def compile_ptx(text: str, arch: str, name: str = "decode.cu", cache_dir: Path | None = None) -> str:
    """As compile_cubin, but PTX, as a driver would get it; NVRTC puts its working folder before relative names."""
    return _cached(text, arch, name, cache_dir, "ptx", _ptx).decode()


def compile_all(
    text: str, archs: Sequence[str] = ARCHS, name: str = "decode.cu", cache_dir: Path | None = None
) -> dict[str, bytes]:
    """One cubin per arch, on all cores. NVRTC releases Python's lock, so threads run in parallel."""
    version()  # load the library once, before the threads use it
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(archs, pool.map(lambda arch: compile_cubin(text, arch, name, cache_dir), archs), strict=True))


def _nvrtc() -> Any:
    """CuPy's binding of NVRTC, which needs no driver; its first call loads the library."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise LabError(
            f"NVRTC cannot be loaded: {str(error) or type(error).__name__}",
            "install the extra cuda13 (or cuda12 for an older driver) into this environment",
        ) from error
    return nvrtc


def _ptx(nvrtc: Any, program: Any) -> bytes:
    return nvrtc.getPTX(program).rstrip(b"\0").replace(f'"{Path.cwd()}/'.encode(), b'"')


def _build(text: str, name: str, chosen: tuple[str, ...], result: Any) -> bytes:
    """Run one NVRTC program and take its `result` (nvrtc.getPTX or nvrtc.getCUBIN). Raises NVRTCError with the log."""
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, chosen)
        return result(program)
    except nvrtc.NVRTCError as error:
        error.log = nvrtc.getProgramLog(program).strip("\0\n ")
        raise
    finally:
        nvrtc.destroyProgram(program)


def _cached(text: str, arch: str, name: str, cache_dir: Path | None, suffix: str, result: Any) -> bytes:
    """One result of NVRTC, from the cache folder if it is there."""
    chosen = options(arch)
    if cache_dir is None:
        return _compile(text, arch, name, chosen, result)
    sha = hashlib.sha256("\0".join((version(), *chosen, name, text)).encode()).hexdigest()
    return cached(Path(cache_dir) / f"{sha}.{suffix}", lambda: _compile(text, arch, name, chosen, result))


def _compile(text: str, arch: str, name: str, chosen: tuple[str, ...], result: Any) -> bytes:
    nvrtc = _nvrtc()
    try:
        return _build(text, name, chosen, lambda program: result(nvrtc, program))
    except nvrtc.NVRTCError as error:
        lines = error.log.splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
        raise CompileError(
            f"{name} does not compile for {arch}: {first}",
            "correct the source; debug=true shows the compiler's whole log",
            error.log,
        ) from None

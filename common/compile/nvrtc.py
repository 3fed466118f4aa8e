"""Compilation by NVRTC, with the same options for CuPy's RawModule on a GPU and for cubins on any machine."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.cache.files import cached
from common.compile.headers import Headers, cuda_folders
from common.compile.nvrtc_process import compiled, libraries
from common.compile.nvrtc_worker import Request
from common.errors import CompileError, LabError
from common.errors.machine import of_system

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
REMEDIES = {  # by the place of the first error, where that is not in the author's file
    "constants(": "rename the variant, knob or region of scratch that is no name in C++",
    "entry(": "write each variant as `template <class Base> struct NAME : Base`",
    "common/kernel/": "give what a variant overrides there the same parameters, and a result of the same use",
}
FLOAT = "__builtin_bit_cast(float, 0x7f{})"
MATH = {"INFINITY": FLOAT.format("800000"), "NAN": FLOAT.format("ffffff"), "M_PI": "3.14159265358979323846"}  # math.h's


@dataclass(frozen=True)
class UserOptions:
    """Options of a user's own text. define: macros, None for one without a value; std: 17 for C++17."""

    headers: Headers = field(default_factory=Headers)
    define: Mapping[str, str | None] = field(default_factory=dict)
    std: int = 17


def user_options(folders: Sequence[Path], define: Mapping[str, str | None], std: int) -> UserOptions:
    """Options of a text that includes headers of these folders and CUDA's. Raises LabError without NVRTC."""
    version()
    return UserOptions(Headers(tuple(folders), cuda_folders(Path(libraries()[-1]))), {**MATH, **define}, std)


def options(arch: str | None = None, std: int = 17) -> tuple[str, ...]:
    """NVRTC's options. None: for RawModule; `sm_90`: all, with the ones that RawModule adds by itself.

    RawModule appends -ftz=true, its device's -arch=sm_XX, --device-as-default-execution-space (it refuses a second one)
    and include folders, which a flattened text does not need. Both lists give the same code.
    Products and sums are fused only by an explicit fmaf, so that variants can be compared bit for bit.
    """
    own = (f"-std=c++{std}", "-lineinfo", "--fmad=false")
    return own if arch is None else (*own, "-ftz=true", f"-arch={arch}", "--device-as-default-execution-space")


@functools.cache
def version() -> str:
    """The compiler's full version, such as 13.5.37. Raises LabError where NVRTC cannot be loaded."""
    nvrtc = _nvrtc()
    program = nvrtc.createProgram("", "version.cu", (), ())
    nvrtc.compileProgram(program, ())
    lines = nvrtc.getPTX(program).decode().splitlines()
    nvrtc.destroyProgram(program)
    # "// Cuda compilation tools, release 13.5, V13.5.37"
    exact = next((line.rpartition(", V")[2].strip() for line in lines if ", V" in line), "")
    return exact or ".".join(map(str, nvrtc.getVersion()))


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
    headers, the options and the compiler's version; None compiles anew. NVRTC runs in a process of its own, which some
    texts end by a segmentation fault.
    Raises CompileError with the log, and LabError where NVRTC cannot be loaded.
    """
    return _cached(text, arch, name, cache_dir, "cubin", UserOptions())


def compile_ptx(
    text: str, arch: str, name: str = "decode.cu", cache_dir: Path | None = None, more: UserOptions = UserOptions()
) -> str:
    """As compile_cubin, but PTX, as a driver would get it; NVRTC puts its working folder before relative names.

    An `arch` such as compute_90 gives the PTX of sm_90 unseen by ptxas.
    """
    return _cached(text, arch, name, cache_dir, "ptx", more).decode()


def _nvrtc() -> Any:
    """CuPy's binding of NVRTC, which needs no driver; its first call loads the library."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.filename:  # CuPy's own cache, in the home folder
            raise of_system(error, "CuPy does not import") from error
        raise LabError(
            f"NVRTC cannot be loaded: {str(error) or type(error).__name__}",
            "install the extra cuda13 (or cuda12 for an older driver) into this environment",
        ) from error
    return nvrtc


def built(request: Request) -> tuple[bytes, ...]:
    """Outputs of NVRTC for a text, by another process. Raises CompileError with the log, `cause` its first error."""
    version()  # it compiles a text, so all libraries are loaded, whose paths that process needs
    outputs, log = compiled(request)
    if outputs is not None:
        return outputs
    lines = log.splitlines()
    first = next((line for line in lines if "error" in line), lines[0] if lines else "NVRTC fails without a word")
    if unclosed := next((line for line in lines if 'to match this "{"' in line), ""):
        first = f"{unclosed.partition(':')[0]}: error: no brace closes this one"
    given = [remedy for place, remedy in REMEDIES.items() if first.startswith(place) and "static assert" not in first]
    raise CompileError(first, f"{[*given, 'correct the source'][0]}; debug=true shows the compiler's whole log", log)


def _cached(text: str, arch: str, name: str, cache_dir: Path | None, output: str, more: UserOptions) -> bytes:
    """One output of NVRTC, from the cache folder if it is there."""
    found = more.headers.found(text)
    defined = (f"-D{name}" if value is None else f"-D{name}={value}" for name, value in more.define.items())
    chosen = (*options(arch, more.std), *defined, *found.options)
    try:
        folder = str(Path.cwd())
    except OSError:  # it has been removed
        folder = "/"

    def make() -> bytes:
        try:
            (made,) = built(Request(text, name, chosen, (output,), found.own, folder))
        except CompileError as error:
            raise CompileError(
                f"{name} does not compile for {arch}: {error.cause}", error.remedy, error.report
            ) from None
        return made if output == "cubin" else made.rstrip(b"\0").replace(f'"{folder}/'.encode(), b'"')

    if cache_dir is None or found.sha is None:
        return make()
    sha = hashlib.sha256("\0".join((version(), *chosen, name, text, *found.sha)).encode()).hexdigest()
    return cached(cache_dir / f"{sha}.{output}", make)

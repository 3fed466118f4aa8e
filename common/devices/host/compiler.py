"""g++ for the host device, with a cache of objects and binaries keyed by text, options, compiler and CPU."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from common import ROOT
from common.cache.files import intact, making, writing
from common.compile.target import HOST
from common.errors import CompileError, LabError
from common.errors.machine import of_output, of_system
from common.model.stages import STAGES

RUNTIME = Path(__file__).resolve().parent / "runtime"
NATIVE = "-march=native"
FLAGS = (
    "-std=c++17",
    "-O2",
    "-g1",
    "-fPIC",
    "-pthread",
    NATIVE,
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
)
# -O2 saves a small model less time than it takes, and Qwen3-0.6B 10 % of a step. -Og would take less still, but inlines
# nothing: threads that meet at two calls of one function would not be found.
# The passes that are left out take a fifth of g++'s time, and kernels of small models are as fast without them.
SMALL = (
    *("-O1", "-fno-tree-dominator-opts", "-fno-tree-loop-optimize", "-fno-tree-pta"),
    *("-fno-dse", "-fno-ipa-profile", "-fno-tree-slsr"),
)
LARGE = ("-O2",)
# Each call of a barrier keeps its own return address, which identifies its place.
PLACES = ("-fno-optimize-sibling-calls", "-fno-crossjumping", "-fno-tree-tail-merge")
WARNINGS = ("-Wall", "-Werror")


class Compiler:
    """g++ with the folder `cache`. All methods raise LabError without g++, CompileError with the whole output, and
    MachineError for failures that are not the text's.

    cross: prefix of the compiler's name for another processor than this machine's, such as `aarch64-linux-gnu-`.
    """

    def __init__(self, cache: Path, cross: str = "") -> None:
        self.cache, self._cross = Path(cache).absolute(), cross

    def version(self) -> str:
        """First line of `g++ --version`."""
        return _version(_gxx(self._cross))

    def kernel(self, text: str, *flags: str, large: bool = False) -> Path:
        """The object of a kernel's flattened text; a compiler warning is an error.

        flags: further options. large: True for a large model: a step takes far longer than the compiler.
        """
        return self._object(text, "kernel.cpp", *WARNINGS, *(LARGE if large else SMALL), *flags)

    def runtime(self, units: Sequence[str], *flags: str) -> Path:
        """The object of source files in runtime/, compiled as one: shared headers take most of the time.

        flags: further options.
        """
        text = "\n".join(f'#line 1 "{unit}"\n{(RUNTIME / unit).read_text()}' for unit in units)
        return self._object(text, "runtime.cpp", *flags)

    def link(self, objects: list[Path], suffix: str, *flags: str) -> Path:
        """A shared library (suffix `.so`) or an executable (suffix `.exe`) of `objects`."""
        target = self.cache / f"{sha(*(path.name for path in objects), *flags)}{suffix}"
        shared = ("-shared",) if suffix == ".so" else ()
        linker = () if self._cross else _linker()
        return self.compiled(target, [*shared, *linker, "-pthread", *flags, *map(str, objects)])

    def _object(self, text: str, unit: str, *flags: str) -> Path:
        options = self.options(*flags)
        headers = [part for path in sorted(RUNTIME.glob("*.hpp")) for part in (path.name, path.read_text())]
        target = self.cache / f"{sha(unit, text, *headers, *options, self.version(), cpu())}.o"
        if intact(target):  # a cache hit writes nothing
            return target
        with temporary() as folder:
            (Path(folder) / unit).write_text(text)
            relative = f"-fdebug-prefix-map={folder}=."  # file names in debug information, as in the text
            return self.compiled(target, [*options, f"-I{RUNTIME}", relative, "-c", unit], folder)

    def options(self, *flags: str) -> list[str]:
        """Options for every source file, and `flags`."""
        names = ", ".join(f'"{stage}"' for stage in STAGES)
        options = [*FLAGS, *PLACES, *flags, f"-DLAB_STAGE_NAMES={names}", f"-D__CUDA_ARCH__={10 * HOST}"]
        if self._cross:
            options.remove(NATIVE)
        elif platform.machine() == "x86_64":
            options.append("-mtls-dialect=gnu2")  # TLS descriptors: fast thread-local variables in a loaded library
        return options

    def run(self, arguments: Sequence[str], folder: str = ".") -> None:
        """Run g++ with `arguments` in `folder`."""
        _run([_gxx(self._cross), *arguments], folder)

    def compiled(self, target: Path, arguments: list[str], folder: str = ".") -> Path:
        """`target`, compiled by g++ with `arguments` in `folder` unless the cache has it undamaged."""
        if intact(target):
            return target
        with making(target) as waited:
            if not (waited and intact(target)):
                with writing(target) as part:
                    self.run([*arguments, "-o", str(part)], folder)
        return target


def _gxx(cross: str = "") -> str:
    path = shutil.which(f"{cross}g++")
    if not path:
        raise LabError(
            f"kernels on the CPU need {cross}g++, which is not installed",
            "install it (Debian: apt install g++), or use device=cuda",
        )
    return path


@cache
def _linker() -> tuple[str, ...]:
    """gold, where it is installed: a kernel is linked in 20 ms and not in 70, and a run of all variants links 500."""
    return ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()


@cache
def _version(gxx: str) -> str:
    return _run([gxx, "--version"]).stdout.splitlines()[0]


@cache
def cpu() -> str:
    """The CPU features that -march=native depends on: machines that share a cache folder must not share binaries."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def sha(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@contextmanager
def temporary() -> Iterator[str]:
    """A folder for the text that g++ reads. Raises MachineError."""
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield folder
    except OSError as error:
        raise of_system(error, "the text for g++ cannot be written") from error


def _run(command: list[str], folder: str = ".") -> subprocess.CompletedProcess[str]:
    """Run g++ with messages in English. Raises CompileError, and MachineError where the text is not at fault."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder, env=environment)
    except OSError as error:
        raise of_system(error, "g++ cannot be started") from error
    if done.returncode:
        if fault := of_output(done.stderr, done.returncode, command):
            raise fault
        lines = [line for line in done.stderr.splitlines() if not line.startswith("collect2:")]  # says that ld failed
        first = next((line for line in lines if "error" in line), next(iter(lines), done.stderr.strip()))
        first = first.replace(f"{ROOT}/", "")  # of the runtime; the kernels' lines name their files so
        raise CompileError(f"g++ failed: {first}", "add debug=true for the whole output of the compiler", done.stderr)
    return done

"""g++ for the host device: objects and binaries in a cache, found again by their text, flags, compiler and CPU."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from common.errors import CompileError, LabError
from common.model import STAGES

RUNTIME = Path(__file__).resolve().parent.parent / "host"
FLAGS = ("-std=c++17", "-O2", "-g1", "-fPIC", "-pthread", "-march=native", "-ffp-contract=off", "-fno-math-errno")
WARNINGS = ("-Wall", "-Werror")


class Compiler:
    """Compiles into the folder `cache`. Every method raises CompileError, with the compiler's output."""

    def __init__(self, cache: Path) -> None:
        self.cache = Path(cache).absolute()

    def version(self) -> str:
        """First line of `g++ --version`. Raises LabError when there is no g++."""
        return _version(_gxx())

    def kernel(self, text: str, *flags: str) -> Path:
        """The object of a kernel's flattened text; a warning is an error."""
        return self._object(text, "kernel.cpp", *WARNINGS, *flags)

    def runtime(self, unit: str, *flags: str) -> Path:
        """The object of one file of common/host."""
        return self._object((RUNTIME / unit).read_text(), unit, *flags)

    def link(self, objects: list[Path], suffix: str, *flags: str) -> Path:
        """A shared library (`.so`) or a program (`.exe`) of `objects`."""
        target = self.cache / f"{_sha(*(path.name for path in objects), *flags)}{suffix}"
        shared = ("-shared",) if suffix == ".so" else ()
        return self._make(target, [_gxx(), *shared, "-pthread", *flags, *map(str, objects)])

    def _object(self, text: str, unit: str, *flags: str) -> Path:
        names = ", ".join(f'"{stage}"' for stage in STAGES)
        options = [*FLAGS, *flags, f"-I{RUNTIME}", f"-DLAB_STAGE_NAMES={names}"]
        if platform.machine() == "x86_64":
            options.append("-mtls-dialect=gnu2")  # thread-locals of a loaded library without a call
        headers = "".join(path.read_text() for path in sorted(RUNTIME.glob("*.hpp")))
        path = self.cache / f"{_sha(text, headers, *FLAGS, *flags, self.version(), _cpu())}.o"
        if path.exists():
            return path
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / unit).write_text(text)
            options.append(f"-fdebug-prefix-map={folder}=.")  # reports then name files as the text does
            return self._make(path, [_gxx(), *options, "-c", unit], folder)

    def _make(self, target: Path, command: list[str], folder: str = ".") -> Path:
        """Run `command` in `folder` with its output going to `target`, which appears whole or not at all."""
        if target.exists():
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(f".{os.getpid()}.part")
            _run([*command, "-o", str(part)], folder)
            part.rename(target)
        except OSError as error:
            raise LabError(
                f"cannot write {target}: {error.strerror}", "set cache=FOLDER to one you can write"
            ) from error
        return target


def _gxx() -> str:
    found = shutil.which("g++")
    if not found:
        raise LabError(
            "the host device needs g++ and there is none", "install it (Debian: apt install g++), or use device=cuda"
        )
    return found


@cache
def _version(gxx: str) -> str:
    return _run([gxx, "--version"]).stdout.splitlines()[0]


@cache
def _cpu() -> str:
    """What -march=native depends on: a cache on a shared disk must not mix machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _sha(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _run(command: list[str], folder: str = ".") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise CompileError(f"g++ failed: {first}", "read the compiler's whole output with debug=true", done.stderr)
    return done

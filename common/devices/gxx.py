"""g++ for the machine of the PTX device."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from common import ROOT
from common.cache.files import intact, making, writing
from common.errors import CompileError, LabError
from common.errors.machine import of_output, of_system

GROUPS = min(4, os.cpu_count() or 1)  # groups of units, each compiled as one: shared headers take as long as a unit


def built(target: Path, units: Sequence[Path], flags: Sequence[str], linking: Sequence[str], cross: str = "") -> Path:
    """`target`, compiled and linked of `units` unless it is there and undamaged. Raises what `run` does."""
    with making(target) as waited:
        if not (waited and intact(target)):
            with temporary() as folder, ThreadPoolExecutor(GROUPS) as pool:

                def compiled(number: int) -> str:
                    whole = Path(folder) / f"{number}.cpp"
                    whole.write_text("".join(f'#include "{unit}"\n' for unit in units[number::GROUPS]))
                    run([*flags, "-c", str(whole), "-o", f"{whole}.o"], cross)
                    return f"{whole}.o"

                objects = list(pool.map(compiled, range(GROUPS)))
                with writing(target) as part:
                    run([*linking, "-pthread", *objects, "-o", str(part)], cross)
    return target


@cache
def version(cross: str = "") -> str:
    """First line of `g++ --version`. Raises LabError without g++."""
    return run(["--version"], cross).splitlines()[0]


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


def run(arguments: Sequence[str], cross: str = "") -> str:
    """Output of g++, with messages in English.

    cross: prefix of the compiler's name for another processor than this machine's, such as `aarch64-linux-gnu-`.
    Raises LabError without g++, CompileError with the whole output, and MachineError where the text is not at fault.
    """
    gxx = shutil.which(f"{cross}g++")
    if not gxx:
        raise LabError(
            f"kernels on the CPU need {cross}g++, which is not installed",
            "install it (Debian: apt install g++), or use device=cuda",
        )
    command, environment = [gxx, *arguments], os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    except OSError as error:
        raise of_system(error, "g++ cannot be started") from error
    if done.returncode:
        if fault := of_output(done.stderr, done.returncode, command):
            raise fault
        lines = [line for line in done.stderr.splitlines() if not line.startswith("collect2:")]  # says that ld failed
        first = next((line for line in lines if "error" in line), next(iter(lines), done.stderr.strip()))
        first = first.replace(f"{ROOT}/", "")
        raise CompileError(f"g++ failed: {first}", "add debug=true for the whole output of the compiler", done.stderr)
    return done.stdout

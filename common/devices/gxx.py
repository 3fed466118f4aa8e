"""g++ for the machine of the PTX device, with a cache of objects and libraries."""

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
from common.errors import LabError
from common.errors.machine import MachineError, of_system


class Compiler:
    """g++ with the folder `cache`. All methods raise LabError without g++, and MachineError where it fails, because
    its texts are the lab's own.

    cross: prefix of the compiler's name for another processor than this machine's, such as `aarch64-linux-gnu-`.
    """

    def __init__(self, cache: Path, cross: str = "") -> None:
        self.cache, self._cross = Path(cache).absolute(), cross

    def version(self) -> str:
        """First line of `g++ --version`."""
        return _version(_gxx(self._cross))

    def link(self, objects: list[Path]) -> Path:
        """A shared library of `objects`."""
        target = self.cache / f"{sha(*(path.name for path in objects))}.so"
        linker = () if self._cross else _linker()
        return self.compiled(target, ["-shared", *linker, "-pthread", *map(str, objects)])

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
    """gold, where it is installed: it takes a third of the time."""
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
    """Run g++ with messages in English. Raises MachineError with the whole output."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder, env=environment)
    except OSError as error:
        raise of_system(error, "g++ cannot be started") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("collect2:")]  # says that ld failed
        first = next((line for line in lines if "error" in line), next(iter(lines), f"exit code {done.returncode}"))
        first = first.replace(f"{ROOT}/", "")
        remedy = "check that g++ works, and that memory and disks have room"
        raise MachineError(f"g++ failed: {first}", remedy, done.stderr)
    return done

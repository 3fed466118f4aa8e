"""g++ for the machine of the PTX device."""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from common import ROOT
from common.cache.files import intact, making, writing
from common.errors.machine import MachineError, of_system, system_errors

GROUPS = min(4, os.cpu_count() or 1)  # groups of units, each compiled as one: shared headers take as long as a unit


def built(target: Path, units: Sequence[Path], flags: Sequence[str], linking: Sequence[str]) -> Path:
    """`target`, compiled and linked of `units` unless it is there and undamaged. Raises what `run` does."""
    with making(target) as waited:
        if not (waited and intact(target)):
            with (
                system_errors("the text for g++"),
                TemporaryDirectory(ignore_cleanup_errors=True) as folder,
                ThreadPoolExecutor(GROUPS) as pool,
            ):

                def compiled(number: int) -> str:
                    whole = Path(folder) / f"{number}.cpp"
                    whole.write_bytes(os.fsencode("".join(f'#include "{unit}"\n' for unit in units[number::GROUPS])))
                    run([*flags, "-c", str(whole), "-o", f"{whole}.o"])
                    return f"{whole}.o"

                objects = list(pool.map(compiled, range(GROUPS)))
                with writing(target) as part:
                    run([*linking, "-pthread", *objects, "-o", str(part)])
    return target


@cache
def version() -> str:
    """First line of `g++ --version`. Raises MachineError without g++."""
    return run(["--version"]).splitlines()[0]


@cache
def cpu() -> str:
    """The CPU features that -march=native depends on: machines that share a cache folder must not share binaries."""
    return cpuinfo("flags", "features") or platform.processor() or platform.machine()


def cpuinfo(*fields: str) -> str | None:
    """The first of these fields in /proc/cpuinfo; None where it has none, as on some aarch64 systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.lower().startswith(fields)), None)


def sha(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def run(arguments: Sequence[str]) -> str:
    """Output of g++, with messages in English.

    Raises MachineError without g++, and with the whole output where it fails: its texts are the lab's own.
    """
    gxx = shutil.which("g++")
    if not gxx:
        raise MachineError(
            "kernels on the CPU need g++, which is not installed",
            "install it (Debian: apt install g++), or use device=cuda",
        )
    try:
        done = subprocess.run(
            [gxx, *arguments], capture_output=True, text=True, errors="replace", env=os.environ | {"LC_ALL": "C"}
        )
    except OSError as error:
        raise of_system(error, "g++ cannot be started") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("collect2:")]  # says that ld failed
        first = next((line for line in lines if "error" in line), next(iter(lines), f"exit code {done.returncode}"))
        remedy = "check that g++ works, and that memory and disks have room"
        raise MachineError(f"g++ failed: {first.replace(f'{ROOT}/', '')}", remedy, done.stderr)
    return done.stdout

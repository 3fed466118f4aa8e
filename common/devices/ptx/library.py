"""The machine as a shared library: compiled once for a machine, by g++."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

from common.cache.files import intact, writing
from common.devices.host.compiler import _cpu, _gxx, _version
from common.errors import LabError
from common.errors.machine import of_output

SOURCES = Path(__file__).resolve().parent / "machine"
FLAGS = (
    "-std=c++20",
    "-O2",
    "-g1",
    "-fPIC",
    "-march=native",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-fno-strict-aliasing",  # a register has the type that an instruction gives it
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)
WIDE = "-mprefer-vector-width=512"


def library(cache: Path) -> Path:
    """The path of the compiled library. Raises LabError without g++, or if it fails."""
    gxx = _gxx()
    files = sorted((*SOURCES.glob("*.cpp"), *SOURCES.glob("*.hpp")))
    flags = [*FLAGS, *([WIDE] if platform.machine() == "x86_64" else [])]
    parts = [_version(gxx), _cpu(), *flags, *(text for file in files for text in (file.name, file.read_text()))]
    target = Path(cache).absolute() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}.so"
    if not intact(target):
        with writing(target) as part:
            units = [str(file) for file in files if file.suffix == ".cpp"]
            command = [gxx, *flags, "-shared", *units, "-o", str(part)]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
            if done.returncode:
                if fault := of_output(done.stderr, done.returncode, command):
                    raise fault
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
                raise LabError(f"g++ does not compile the PTX executor: {first}", "use g++ 12 or newer")
    return target

"""Programs of NVIDIA's that may be missing, too old, or not allowed to look: each ends in one line with the remedy."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from common.errors import LabError

SHOWN = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}
# What a tool says when it may not, or cannot, look: a pattern, and what to do.
EXPLAINED = (
    (
        r"ERR_NVGPUCTRPERM",
        "the driver keeps the GPU's counters for administrators",
        "run as root, in a container with --cap-add=SYS_ADMIN, or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (r"No kernels were profiled", "no such kernel was launched", "use device=cuda, and check ncu.kernel and ncu.skip"),
    (
        r"(?i)unsupported GPU|not supported on this (GPU|device)|newer driver",
        "the tool does not know this GPU or driver",
        "install a version of the GPU's year or later",
    ),
    (
        r"(?i)resource.*(in use|unavailable)|another profiler|ERR_NVGPU_?RESOURCE",
        "another profiler has the GPU",
        "end it (dcgm too: dcgmi profile --pause), then try again",
    ),
)


def find(name: str, minimum: str) -> str:
    """The path of `nsys` or `ncu`. Raises LabError when it is missing or older than `minimum` (as "2023.1")."""
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if not path:
        raise LabError(
            f"{name} is not installed", f"install {SHOWN[name]} and put it on PATH; tool=timeline needs no tool"
        )
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"\b(20\d\d(?:\.\d+)+)", said)
    if not version:
        raise LabError(f"{path} --version says no version: {said.strip()[:80]!r}", f"install {SHOWN[name]} anew")
    if _number(version[1]) < _number(minimum):
        raise LabError(f"{name} {version[1]} is older than {minimum}", f"install a newer {SHOWN[name]}")
    return path


def call(command: Sequence[str], log: Path) -> str:
    """Run the tool; what it and the program below it printed goes to `log` and is returned.

    Raises LabError, with the remedy where the tool's complaint is a known one.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log.write_text(done.stdout)
    name = Path(command[0]).name
    for pattern, cause, remedy in EXPLAINED:
        if re.search(pattern, done.stdout):
            raise LabError(f"{name}: {cause}", f"{remedy}; the run's own output is in {log}")
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no output")
        raise LabError(f"{name} ended with {done.returncode}: {first}", f"see {log}")
    return done.stdout


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))

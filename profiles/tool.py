"""Calls of NVIDIA's profilers: find the program, check its version, run it, explain its errors in one line."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from common.config.section import Section
from common.errors import LabError

FULL_NAMES = {"nsys": "Nsight Systems", "ncu": "Nsight Compute"}
OLDEST = {"nsys": "2023.1", "ncu": "2022.1"}  # older ones do not show the nodes of a CUDA graph
OPTION = re.compile(r"--[a-z][a-z0-9-]*(=.+)?", re.DOTALL)
COMPLAINT = re.compile(r"(?i)error|illegal|unrecogni[sz]ed|invalid|missing|cannot|already exists")
# Known messages of the tools: (pattern, cause, remedy).
KNOWN_ERRORS = (
    (
        r"ERR_NVGPUCTRPERM",
        "the driver allows the GPU's counters to administrators only",
        "run as root, in a container with --cap-add=SYS_ADMIN, or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (r"No kernels were profiled", "no such kernel was launched", "use device=cuda, and check ncu.kernel and ncu.skip"),
)


def extra(settings: Section) -> tuple[str, ...]:
    """The user's `options` of a tool's section, one argument each. Raises LabError.

    An item that is no option is refused: the tool would treat it, and everything after it, as the program to run.
    """
    given = settings.texts("options")
    for item in given:
        if not OPTION.fullmatch(item):
            key = f"{settings.path}options"
            raise LabError(
                f"'{item}' in {key} is neither --name nor --name=value",
                f"""quote an option that has a comma: '{key}=["--name=a,b"]'""",
            )
    return given


def literal(path: Path) -> str:
    """`path` as the name of a report: both tools replace %h by the host name, %p by the process id and %% by %."""
    return str(path).replace("%", "%%")


def find(name: str) -> str:
    """The path of `nsys` or `ncu`. Raises LabError when it is missing or older than OLDEST."""
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if not path:
        raise LabError(
            f"{name} is not installed", f"install {FULL_NAMES[name]} and put it on PATH; tool=timeline needs no tool"
        )
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace").stdout
    except OSError as error:
        raise LabError(f"{path} does not start: {error.strerror}", f"reinstall {FULL_NAMES[name]}") from error
    version = re.search(r"\b(20\d\d(?:\.\d+)+)", output)
    if not version:
        raise LabError(f"{path} --version prints no version: {output.strip()[:80]!r}", f"reinstall {FULL_NAMES[name]}")
    if _number(version[1]) < _number(OLDEST[name]):
        raise LabError(f"{name} {version[1]} is older than {OLDEST[name]}", f"install a newer {FULL_NAMES[name]}")
    return path


def call(command: Sequence[str], log: Path) -> str:
    """Run the tool. Its output and the profiled program's go to `log`, and are returned.

    Raises LabError, with a specific remedy for KNOWN_ERRORS.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    log.write_text(done.stdout, encoding="utf-8")
    name = Path(command[0]).name
    for pattern, cause, remedy in KNOWN_ERRORS:
        if re.search(pattern, done.stdout):
            raise LabError(f"{name}: {cause}", f"{remedy}; the run's own output is in {log}")
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        first = next((line for line in lines if COMPLAINT.search(line)), lines[-1] if lines else "no output")
        raise LabError(f"{name} ended with {done.returncode}: {first}", f"see {log}")
    return done.stdout


def capture(command: Sequence[str], report: Path, remedy: str) -> None:
    """Run a tool that writes `report`, with its output beside it. Raises LabError where it captures nothing."""
    report.unlink(missing_ok=True)  # so that an old one is not read
    call(command, report.with_name(f"{Path(command[0]).name}.log"))
    if not report.exists():
        raise LabError(f"{Path(command[0]).name} captured nothing", remedy)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))

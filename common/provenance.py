"""Where a result comes from: enough to run it again, and nothing that names a person or a machine."""

import platform
import re
import shlex
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from common import nvrtc
from common.errors import LabError
from common.gpu import Gpu

ROOT = Path(__file__).resolve().parent.parent
# What a run itself writes; a row that was added does not make the code another one.
EVIDENCE = "experiments/results"


def provenance(gpu: Gpu | None = None) -> dict[str, Any]:
    """Commit, time (UTC), command, versions, processor and GPU of this run, for a record; None where unknown."""
    gpu = gpu or Gpu.find()
    return {
        "lab": _lab_version(),
        "git": git(ROOT),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "python": platform.python_version(),
        "torch": _installed("torch"),
        "cupy": _installed("cupy-cuda13x", "cupy-cuda12x", "cupy"),
        "numpy": _installed("numpy"),
        "nvrtc": _nvrtc_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
        "gpu": gpu and gpu.facts(),
    }


def git(root: Path) -> dict[str, Any] | None:
    """{"commit": 40 hex digits or None before the first, "dirty": whether code differs from it}.

    None when `root` is not the top of a checkout, or git is missing.
    """

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else done.stdout.strip()

    top = ask("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != Path(root).resolve():
        return None
    changes = ask("status", "--porcelain", "--", ".", f":(exclude){EVIDENCE}")
    return {"commit": ask("rev-parse", "--verify", "HEAD"), "dirty": None if changes is None else bool(changes)}


def _lab_version() -> str | None:
    try:
        return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return _installed("megakernel-lab")


def _command() -> str:
    """The command line, with the home folder as `~` and of other absolute paths the name alone."""
    home = str(Path.home())
    line = shlex.join(["python", *sys.orig_argv[1:]])
    line = line.replace(home, "~") if len(home) > 1 else line
    return re.sub(r"(?<==)/\S*/(?=\S)", ".../", line)


def _installed(*names: str) -> str | None:
    """Version of the first of these distributions that is installed; imports nothing."""
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _nvrtc_version() -> str | None:
    try:
        return nvrtc.version()
    except LabError:
        return None


def _cpu() -> str | None:
    """The processor's model; aarch64 kernels do not always tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(named, None) or platform.processor() or None

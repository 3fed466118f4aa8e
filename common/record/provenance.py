"""Provenance of a record: commit, code, versions, hardware and command; no name of a person, host or folder."""

import os
import platform
import re
import shlex
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from common import ROOT
from common.cache.sources import digest_of
from common.compile import nvrtc
from common.devices.gxx import cpuinfo
from common.devices.nvml import Gpu
from common.errors import LabError

# Written by runs: a new record does not count as a change of the code.
EVIDENCE = "experiments/results"
# Sources that decide results, besides the text of a kernel.
FOLDERS = ("common", "conf", "experiments", "variants")
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".hpp", ".yaml")
COMMIT = "LAB_COMMIT"  # in the environment: the commit of a copy of the code, a + after it where the copy differs


def provenance(bus_id: str | None = None) -> dict[str, Any]:
    """Commit, time (UTC), command, versions, processor and GPU of this run, for a record; None where unknown.

    bus_id: of the GPU that did the work, as for `Gpu.find`; None: a CPU did.
    """
    gpu = bus_id and Gpu.find(bus_id)
    return {
        "lab": lab_version(),
        "git": git(ROOT),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "python": platform.python_version(),
        "torch": installed("torch"),
        "cupy": installed("cupy-cuda13x", "cupy-cuda12x", "cupy"),
        "numpy": installed("numpy"),
        "nvrtc": _nvrtc_version(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpuinfo("model name") or platform.processor() or None,
        "gpu": gpu and gpu.properties(),
    }


def git(root: Path) -> dict[str, Any] | None:
    """{"commit": 40 hex digits, or None before the first commit; "dirty": True if code differs from it}.

    The environment's LAB_COMMIT wins: code that is copied onto a machine lies over an older checkout's .git, if any.
    Without it the result is None if `root` is not the top of a checkout, or git is missing. Raises LabError for a
    LAB_COMMIT that is no commit.
    """
    if given := given_commit():
        return given

    def output(*words: str) -> str | None:
        try:
            command = ["git", "-C", str(root), *words]
            done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else done.stdout.strip()

    top = output("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != Path(root).resolve():
        return None
    changes = output("status", "--porcelain", "--", ".", f":(exclude){EVIDENCE}")
    return {"commit": output("rev-parse", "--verify", "HEAD"), "dirty": None if changes is None else bool(changes)}


def given_commit() -> dict[str, Any] | None:
    """Commit from the environment: on a machine that runs code sent by another. Raises LabError if it is none."""
    commit = os.environ.get(COMMIT)
    if not commit:
        return None
    if not re.fullmatch(r"[0-9a-f]{40}\+?", commit):
        raise LabError(
            f"{COMMIT}={commit} is not a commit",
            f"give {COMMIT}=$(git describe --always --abbrev=40 --dirty=+ --exclude='*') of the checkout",
        )
    return {"commit": commit.removesuffix("+"), "dirty": commit.endswith("+")}


@cache
def code_sha(root: Path = ROOT) -> str:
    """Digest of the lab's code: 16 hex digits of all sources below FOLDERS, by name and content."""
    found = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES)
    return digest_of(found, root)[:16]


def lab_version() -> str | None:
    """Version of the checkout, else of the installed package; None without either."""
    try:
        return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return installed("megakernel-lab")


def _command() -> str:
    """The command line with the home folder as `~`; other absolute paths are shortened to their last part."""
    home = str(Path.home())
    # An absolute path begins a word, an item of a list, or what follows an equals sign or a quote.
    other = re.compile(rf"""(?<![^=,["'])(?!{re.escape(home)}(?![^/,\]"']))/[^,\]"']*/(?=[^,\]"'])""")
    line = shlex.join(["python", *(other.sub(".../", word) for word in sys.orig_argv[1:])])
    return line.replace(home, "~") if len(home) > 1 else line


def installed(*names: str) -> str | None:
    """Version of the first installed distribution in `names`, or None; does not import it."""
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

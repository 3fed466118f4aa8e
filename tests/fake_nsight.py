"""Fake `nsys` and `ncu` that take the documented options that the lab and its tests pass; nothing is profiled.

Run as `nsys` or `ncu`. It writes calls.jsonl (command, options, program of each call) to the folder FAKE_NSIGHT. From
there it copies report.sqlite as the export, and prints details.csv as the imported report. A file `start` in the folder
makes it start the program; without it, it only checks that the program exists. With a file `captures nothing` it writes
no report. An error has the words of the real tool, and exit code 1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# By the Nsight Systems User Guide ("CLI Profile Command Switch Options", "CLI Export Command Switch Options") and the
# Nsight Compute CLI manual ("Command Line Options").
OPTIONS = {
    "profile": "capture-range capture-range-end cpuctxsw cuda-graph-trace env-var force-overwrite output sample trace",
    "export": "force-overwrite output type",
    "ncu": "cache-control clock-control csv export force-overwrite import import-source kernel-id kernel-name "
    "launch-count launch-skip metrics nvtx page print-details profile-from-start replay-mode section source-folders",
}
FLAGS = ("csv", "force-overwrite", "nvtx")  # ncu's, without a value


class Refused(Exception):
    """The error message of the tool."""


def parse(tool: str, known: list[str], arguments: list[str]) -> tuple[list[list[str]], list[str]]:
    """Options as [name, value] in their order, and the program with its arguments."""
    found: list[list[str]] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest[0].removeprefix("--").partition("=")
        if name not in known:
            raise Refused(f"unrecognised option '{rest[0]}'")
        rest.pop(0)
        if not equals and (tool == "nsys" or name not in FLAGS):
            if tool == "nsys" or not rest:
                raise Refused(f"the required argument for option '--{name}' is missing")
            value = rest.pop(0)
        found.append([name, value])
    return found, rest


def run(tool: str, arguments: list[str], folder: Path) -> int:
    command = arguments.pop(0) if tool == "nsys" else "profile"
    found, program = parse(tool, OPTIONS[command if tool == "nsys" else tool].split(), arguments)
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps({"tool": tool, "command": command, "options": found, "program": program}) + "\n")
    options = dict(found)
    if "import" in options:
        program = [options["import"]]
    if not program or (shutil.which(program[0]) is None and not Path(program[0]).exists()):
        raise Refused(f"cannot find the program or the report: {' '.join(program) or 'none is given'}")
    if command == "export":
        shutil.copy(folder / "report.sqlite", options["output"])
        return 0
    if "import" in options:
        print((folder / "details.csv").read_text())
        return 0
    macros = {"%h": "host", "%p": str(os.getpid()), "%%": "%"}
    name = re.sub(r"%[hp%]", lambda macro: macros[macro[0]], options["output" if tool == "nsys" else "export"])
    if Path(name).exists() and options.get("force-overwrite") not in ("true", ""):
        raise Refused(f"File already exists: {name}")
    done = subprocess.run(program).returncode if (folder / "start").exists() else 0
    if not (folder / "captures nothing").exists():
        Path(name).write_text("a report")
    return done


def main() -> int:
    tool = Path(sys.argv[0]).name
    name, version = {"nsys": ("Nsight Systems", "2025.3.1"), "ncu": ("Nsight Compute", "2025.2.0")}[tool]
    if sys.argv[1:] == ["--version"]:
        print(f"NVIDIA {name} version {version}")
        return 0
    try:
        return run(tool, sys.argv[1:], Path(os.environ["FAKE_NSIGHT"]))
    except Refused as refused:
        print(f"{refused}" if tool == "nsys" else f"==ERROR== {refused}. Use --help for further details.")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())

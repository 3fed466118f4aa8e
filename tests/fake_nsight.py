"""Fake `nsys` and `ncu` with the documented command lines of what the lab and its tests pass; nothing is profiled.

The grammar follows the Nsight Systems User Guide ("CLI Profile Command Switch Options", "CLI Export Command Switch
Options", Linux) and the Nsight Compute CLI manual ("Command Line Options"). It is stricter than the tools: long
options of nsys need their `=`, as in the guide, and names of ncu must not be abbreviated. An error has the words of the
real tool, and exit code 1.

Run as `nsys` or `ncu`. It writes calls.jsonl (command, options, program of each call) to the folder FAKE_NSIGHT. From
there it copies report.sqlite as the export, and prints details.csv as the imported report. A file `start` in the folder
makes it start the program; without it, it only checks that the program exists. With a file `captures nothing` it writes
no report.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Check = Callable[[str], bool]


class Refused(Exception):
    """The error message of the tool."""


def one_of(*words: str) -> Check:
    return lambda value: value in words


def some_of(*words: str) -> Check:
    """A list with commas and without spaces; `none` only without others."""

    def check(value: str) -> bool:
        items = value.split(",")
        return all(item in words for item in items) and (items == ["none"] or "none" not in items)

    return check


def like(pattern: str) -> Check:
    return lambda value: re.fullmatch(pattern, value) is not None


BOOL, TEXT, NUMBER = one_of("true", "false"), like(r"(?s).+"), like(r"\d+")
FLAG = None  # takes no value
TRACES = ("cuda", "nvtx", "osrt", "none")
NSYS_PROFILE: dict[str, Check | None] = {
    "capture-range": one_of("none", "cudaProfilerApi", "hotkey", "nvtx"),
    "capture-range-end": like(r"none|stop|stop-shutdown|repeat(:\d+)?|repeat-shutdown:\d+"),
    "cpuctxsw": one_of("process-tree", "system-wide", "none"),
    "cuda-graph-trace": one_of("graph", "node"),
    "env-var": like(r"\w+=[^,]*(,\w+=[^,]*)*"),
    "force-overwrite": BOOL,
    "output": TEXT,
    "sample": one_of("process-tree", "system-wide", "none"),
    "trace": some_of(*TRACES),
}
NSYS_EXPORT: dict[str, Check | None] = {"force-overwrite": BOOL, "output": TEXT, "type": one_of("sqlite", "text")}
SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy", "LaunchStats", "SourceCounters")
METRIC = r"(group:|breakdown:|pmsampling:)?[a-z0-9_]+(\.[a-z_0-9]+)*|regex:[^,]+"
NCU: dict[str, Check | None] = {
    "cache-control": one_of("all", "none"),
    "clock-control": one_of("base", "boost", "force-boost", "none", "reset"),
    "csv": FLAG,
    "export": TEXT,
    "force-overwrite": FLAG,
    "import": TEXT,
    "import-source": like("on|off|yes|no"),
    "kernel-id": like(r"[^:]*:[^:]*:(regex:)?[^:]*:[^:]*"),
    "kernel-name": like(r"regex:.+|[^:]+"),
    "launch-count": NUMBER,
    "launch-skip": NUMBER,
    "metrics": like(rf"({METRIC})(,({METRIC}))*"),
    "nvtx": FLAG,
    "page": one_of("details", "raw", "source", "session"),
    "print-details": one_of("header", "body", "all"),
    "profile-from-start": like("on|off|yes|no"),
    "replay-mode": one_of("kernel", "application", "range", "app-range"),
    "section": one_of(*SECTIONS),
    "set": one_of("basic", "detailed", "full"),
    "source-folders": lambda value: all(Path(folder).is_dir() for folder in value.split(",")),
}
SHORT = {
    "nsys": {"-t": "trace", "-s": "sample", "-o": "output", "-f": "force-overwrite", "-c": "capture-range"},
    "ncu": {"-k": "kernel-name", "-c": "launch-count", "-s": "launch-skip", "-o": "export", "-f": "force-overwrite"},
}
SHORT["ncu"]["-i"] = "import"
REPEATED = {"section": "ncu"}


def parse(tool: str, grammar: dict[str, Check | None], arguments: list[str]) -> tuple[list[list[str]], list[str]]:
    """Options as [name, value] in their order, and the program with its arguments."""
    found: list[list[str]] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        given = rest.pop(0)
        written, equals, value = given.partition("=")
        name = SHORT[tool].get(given) or (written[2:] if written.startswith("--") else None)
        if name not in grammar:
            raise Refused(f"unrecognised option '{given}'")
        check = grammar[name]
        if check is FLAG:
            if equals:
                raise Refused(f"option '--{name}' does not take any arguments")
        elif not equals:
            if not rest or (tool == "nsys" and written.startswith("--")):
                raise Refused(f"the required argument for option '--{name}' is missing")
            value = rest.pop(0)
        if check is not FLAG and not check(value):
            illegal = f"Illegal --{name} argument '{value}'."
            raise Refused(illegal if tool == "nsys" else f"the argument ('{value}') for option '--{name}' is invalid")
        if name in dict(found) and REPEATED.get(name) != tool:
            raise Refused(f"option '--{name}' cannot be specified more than once")
        found.append([name, value])
    return found, rest


def written(pattern: str, suffix: str, overwrite: bool) -> Path:
    """The path of the report: %h, %p and %% are replaced, and a missing suffix is added."""
    macros = {"%h": "host", "%p": str(os.getpid()), "%%": "%"}
    path = Path(re.sub(r"%[hp%]", lambda macro: macros[macro[0]], pattern))
    path = path if path.suffix == suffix else path.with_name(path.name + suffix)
    if path.exists() and not overwrite:
        raise Refused(f"File already exists: {path}")
    return path


def run(tool: str, arguments: list[str], folder: Path) -> int:
    command = arguments.pop(0) if tool == "nsys" and arguments else "profile"
    commands = {"profile": NSYS_PROFILE, "export": NSYS_EXPORT}
    if command not in commands:
        raise Refused(f"unrecognised option '{command}'")
    grammar = commands[command] if tool == "nsys" else NCU
    if "--help" in arguments:
        print("\n".join(f"  --{name}" for name in grammar))
        return 0
    found, program = parse(tool, grammar, arguments)
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps({"tool": tool, "command": command, "options": found, "program": program}) + "\n")
    options = dict(found)
    if command == "export":
        if len(program) != 1 or not Path(program[0]).exists():
            raise Refused(f"Input file does not exist: {' '.join(program)}")
        if Path(options["output"]).exists() and options.get("force-overwrite") != "true":
            raise Refused(f"File already exists: {options['output']}")
        shutil.copy(folder / "report.sqlite", options["output"])
        return 0
    if "import" in options:
        if program or not Path(options["import"]).exists():
            raise Refused(f"Failed to open report file: {options['import']}")
        print((folder / "details.csv").read_text())
        return 0
    if not program or shutil.which(program[0]) is None:
        raise Refused(f"cannot find the program to run: {' '.join(program) or 'none is given'}")
    overwrite = options.get("force-overwrite") in ("true", "")
    report = written(options["output" if tool == "nsys" else "export"], f".{tool}-rep", overwrite)
    done = subprocess.run(program).returncode if (folder / "start").exists() else 0
    if not (folder / "captures nothing").exists():
        report.write_text("a report")
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
        usage = "usage: nsys profile [<args>] [application] [<application args>]\nTry 'nsys profile --help' for more."
        print(f"{refused}\n\n{usage}" if tool == "nsys" else f"==ERROR== {refused}. Use --help for further details.")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())

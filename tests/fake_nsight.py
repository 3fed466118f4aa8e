"""Fake `nsys` and `ncu` with the documented command lines: each argument is checked, nothing is profiled.

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


BOOL, ONOFF = one_of("true", "false"), one_of("on", "off", "yes", "no")
TEXT, NUMBER = like(r"(?s).+"), like(r"\d+")
FLAG = None  # takes no value
LIBRARIES = ["cublas", "cusolver", "cusparse", "cudla"]
TRACES = [
    *("cuda", "cuda-sw", "nvtx", "osrt", "cudnn", "opengl", "opengl-annotations", "openacc", "openmp", "mpi", "ucx"),
    *("oshmem", "nvvideo", "vulkan", "vulkan-annotations", "python-gil", "gds", "s3", "s3-verbose", "none"),
    *LIBRARIES,
    *(f"{name}-verbose" for name in LIBRARIES),
]

NSYS_PROFILE: dict[str, Check | None] = {
    "backtrace": one_of("auto", "fp", "lbr", "dwarf", "none"),
    "capture-range": one_of("none", "cudaProfilerApi", "hotkey", "nvtx"),
    "capture-range-end": like(r"none|stop|stop-shutdown|repeat(:\d+)?|repeat-shutdown:\d+"),
    "cpuctxsw": one_of("process-tree", "system-wide", "none"),
    "cuda-event-trace": one_of("auto", "true", "false"),
    "cuda-flush-interval": NUMBER,
    "cuda-graph-trace": one_of("graph", "node"),
    "cuda-memory-usage": BOOL,
    "cuda-trace-all-apis": BOOL,
    "cuda-um-cpu-page-faults": BOOL,
    "cuda-um-gpu-page-faults": BOOL,
    "cudabacktrace": like(r"none|(all|kernel|memory|sync|other)(:\d+)?(,(all|kernel|memory|sync|other)(:\d+)?)*"),
    "delay": NUMBER,
    "duration": like(r"[1-9]\d*"),
    "env-var": like(r"\w+=[^,]*(,\w+=[^,]*)*"),
    "event-sample": one_of("system-wide", "none"),
    "export": one_of("arrow", "arrowdir", "hdf", "jsonlines", "sqlite", "parquetdir", "text", "none"),
    "flush-on-cudaprofilerstop": BOOL,
    "force-overwrite": BOOL,
    "gpu-metrics-devices": like(r"all|none|help|\d+(,\d+)*"),
    "gpu-metrics-frequency": NUMBER,
    "gpu-metrics-set": TEXT,
    "gpuctxsw": BOOL,
    "inherit-environment": BOOL,
    "kill": like(r"none|sigkill|sigterm|\d+"),
    "nvtx-capture": TEXT,
    "nvtx-domain-exclude": TEXT,
    "nvtx-domain-include": TEXT,
    "output": TEXT,
    "python-backtrace": one_of("cuda", "none"),
    "python-sampling": BOOL,
    "python-sampling-frequency": NUMBER,
    "pytorch": one_of("autograd-nvtx", "autograd-shapes-nvtx", "functions-trace", "none"),
    "resolve-symbols": BOOL,
    "sample": one_of("process-tree", "system-wide", "none"),
    "session-new": like(r"[A-Za-z][ -~]*"),
    "show-output": BOOL,
    "start-later": BOOL,
    "stats": BOOL,
    "stop-on-exit": BOOL,
    "trace": some_of(*TRACES),
    "trace-fork-before-exec": BOOL,
    "wait": one_of("primary", "all"),
}
NSYS_EXPORT: dict[str, Check | None] = {
    "force-overwrite": BOOL,
    "include-blobs": BOOL,
    "include-json": BOOL,
    "lazy": BOOL,
    "output": TEXT,
    "quiet": BOOL,
    "tables": TEXT,
    "times": TEXT,
    "type": one_of("sqlite", "hdf", "text", "info", "arrow", "jsonlines", "arrowdir", "parquetdir"),
}
MEMORY, SPEED = "MemoryWorkloadAnalysis", "SpeedOfLight"
SECTIONS = [
    *(MEMORY, f"{MEMORY}_Chart", f"{MEMORY}_Tables", "ComputeWorkloadAnalysis", "WorkloadDistribution"),
    *(SPEED, f"{SPEED}_RooflineChart"),
    *(f"{SPEED}_Hierarchical{kind}RooflineChart" for kind in ("Double", "Half", "Single", "Tensor")),
    *("InstructionStats", "LaunchStats", "SchedulerStats", "WarpStateStats", "SourceCounters", "Occupancy"),
    *("NumaAffinity", "Nvlink", "Nvlink_Tables", "Nvlink_Topology", "PmSampling", "PmSampling_WarpStates"),
]
METRIC = r"(group:|breakdown:|pmsampling:)?[a-z0-9_]+(\.[a-z_0-9]+)*|regex:[^,]+"
NCU: dict[str, Check | None] = {
    "apply-rules": ONOFF,
    "cache-control": one_of("all", "none"),
    "call-stack": FLAG,
    "check-exit-code": ONOFF,
    "clock-control": one_of("base", "boost", "force-boost", "none", "reset"),
    "csv": FLAG,
    "devices": like(r"\d+(,\d+)*"),
    "disable-profiler-start-stop": FLAG,
    "export": TEXT,
    "filter-mode": one_of("global", "per-gpu", "per-launch-config"),
    "force-overwrite": FLAG,
    "graph-profiling": one_of("node", "graph"),
    "import": TEXT,
    "import-sass": ONOFF,
    "import-source": ONOFF,
    "kernel-id": like(r"[^:]*:[^:]*:(regex:)?[^:]*:[^:]*"),
    "kernel-name": like(r"regex:.+|[^:]+"),
    "kernel-name-base": one_of("function", "demangled", "mangled"),
    "kill": ONOFF,
    "launch-count": NUMBER,
    "launch-skip": NUMBER,
    "launch-skip-before-match": NUMBER,
    "log-file": TEXT,
    "metrics": like(rf"({METRIC})(,({METRIC}))*"),
    "nvtx": FLAG,
    "nvtx-exclude": TEXT,
    "nvtx-include": TEXT,
    "page": one_of("details", "raw", "source", "session"),
    "print-details": one_of("header", "body", "all"),
    "print-fp": FLAG,
    "print-metric-instances": one_of("none", "values", "details"),
    "print-metric-name": one_of("label", "name", "label-name"),
    "print-nvtx-rename": one_of("none", "kernel"),
    "print-source": one_of("sass", "ptx", "cuda", "cuda,sass"),
    "print-summary": one_of("none", "per-gpu", "per-kernel", "per-nvtx"),
    "print-units": one_of("auto", "base"),
    "profile-from-start": ONOFF,
    "quiet": FLAG,
    "replay-mode": one_of("kernel", "application", "range", "app-range"),
    "rule": TEXT,
    "section": lambda value: value in SECTIONS or value.startswith("regex:"),
    "set": one_of("basic", "detailed", "full", "nvlink", "pmsampling", "roofline"),
    "source-folders": lambda value: all(Path(folder).is_dir() for folder in value.split(",")),
    "target-processes": one_of("application-only", "all"),
    "target-processes-filter": TEXT,
    "verbose": FLAG,
}
SHORT = {
    "nsys": {"-t": "trace", "-s": "sample", "-o": "output", "-f": "force-overwrite", "-c": "capture-range"},
    "ncu": {"-k": "kernel-name", "-c": "launch-count", "-s": "launch-skip", "-o": "export", "-f": "force-overwrite"},
}
SHORT["ncu"]["-i"] = "import"
REPEATED = {"export": "nsys", "section": "ncu", "rule": "ncu", "nvtx-include": "ncu", "nvtx-exclude": "ncu"}


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

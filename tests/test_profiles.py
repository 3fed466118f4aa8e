"""Profilers without a profiler: parsers on small exports of the documented form, tools that are missing or refuse."""

import sqlite3
import stat
from pathlib import Path

import pytest

from common.errors import LabError
from common.section import Section
from profiles import ncu, nsys
from profiles.__main__ import main
from profiles.tool import call, find

# The tables and columns that nsys documents (SQLite export schema), cut to those with a meaning here.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, blockX INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
STRINGS = {1: "decode", 2: "stage_qkv", 3: "decode baseline position 1", 4: "cudaLaunchKernel"}
THREAD, OTHER = 281474976710657, 281474976710658


@pytest.fixture
def export(tmp_path):
    """Two launches in two ranges inside an outer one, one launch in none, and ranges of another thread and kind."""
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as base:
        base.executescript(SCHEMA)
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS.items())
        kernels = [(5000, 9000, 11, 1), (9000, 11000, 12, 1), (12000, 12500, 13, 2)]
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, 0, ?, ?, 8, 256)",
            [(start, end, call, name, name) for start, end, call, name in kernels],
        )
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 4, 0)",
            [(1100, 1110, THREAD, 11), (2100, 2110, THREAD, 12), (9900, 9910, THREAD, 13)],
        )
        base.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, ?, ?, NULL, ?, 1)",
            [
                (1000, 3000, 59, "profile baseline", THREAD, None),
                (1050, 1900, 59, None, THREAD, 3),  # a registered string
                (2000, 2900, 59, "decode baseline position 2", THREAD, None),
                (1000, 3000, 59, "of another thread", OTHER, None),
                (1090, 2950, 60, "started and ended", THREAD, None),
                (900, None, 59, "never popped", THREAD, None),
            ],
        )
    base.close()
    return path


def test_kernels_are_grouped_by_their_innermost_range(export):
    table = nsys.kernels(export)
    assert list(table.columns) == list(nsys.COLUMNS)
    assert table.to_dict("split")["data"] == [
        ["decode baseline position 1", "decode", 1, 4.0, 4.0, 4.0, 4.0],
        ["decode baseline position 2", "decode", 1, 2.0, 2.0, 2.0, 2.0],
        ["-", "stage_qkv", 1, 0.5, 0.5, 0.5, 0.5],
    ]


def test_an_export_without_nvtx_still_has_kernels(export):
    with sqlite3.connect(export) as base:
        base.execute("DROP TABLE NVTX_EVENTS")
    assert set(nsys.kernels(export)["range"]) == {"-"}


@pytest.mark.parametrize(
    ("drop", "said"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "saw no kernel"),
        ("StringIds", "no export"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "cannot be read"),
    ],
)
def test_an_export_that_lacks_a_table_is_one_line(export, drop, said):
    with sqlite3.connect(export) as base:
        base.execute(f"DROP TABLE {drop}")
    with pytest.raises(LabError, match=said):
        nsys.kernels(export)


def test_a_file_that_is_no_database_is_one_line(tmp_path):
    (tmp_path / "x.sqlite").write_text("not a database, and long enough to be read as a header of one" * 20)
    with pytest.raises(LabError, match="cannot be read"):
        nsys.kernels(tmp_path / "x.sqlite")


CSV = '''==PROF== Connected to process 4242
some line of the run itself
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"GPU Speed Of Light Throughput","DRAM Throughput","%","63.25","","",""
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"GPU Speed Of Light Throughput","Elapsed Cycles","cycle","1,234,567","","",""
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"Launch Statistics","Function Cache Configuration","","CachePreferNone","","",""
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"Occupancy","","","","TheoreticalOccupancy","OPT","says, ""something"""
'''


def test_ncu_table_has_numbers_units_and_no_machine():
    table = ncu.metrics(CSV)
    assert table.to_dict("split")["data"] == [
        ["decode", "GPU Speed Of Light Throughput", "DRAM Throughput", "%", 63.25],
        ["decode", "GPU Speed Of Light Throughput", "Elapsed Cycles", "cycle", 1234567.0],
        ["decode", "Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"],
    ]
    assert "somewhere" not in table.to_string()


@pytest.mark.parametrize("text", ["", "==ERROR== something else", '"ID","Kernel Name"\n"0","decode"\n'])
def test_output_without_the_table_is_one_line(text):
    with pytest.raises(LabError, match=r"ncu printed no table|ncu's table lacks"):
        ncu.metrics(text)


SETTINGS = {
    "minimum": "2022.1",
    "kernel": None,
    "skip": 3,
    "clock_control": "none",
    "sections": ["Occupancy", "X"],
    "metrics": ["a.sum", "b.avg"],
}


def test_ncu_is_asked_for_one_launch_of_one_kernel():
    line = " ".join(ncu.options(Section(dict(SETTINGS), "ncu."), by_stage=False))
    for part in (
        "--kernel-name decode",
        "--launch-skip 3",
        "--launch-count 1",
        "--clock-control none",
        "--section Occupancy --section X",
        "--metrics a.sum,b.avg",
        "--profile-from-start off",
    ):
        assert part in line
    assert "--kernel-name stage_lm_head" in " ".join(ncu.options(Section(dict(SETTINGS), "ncu."), by_stage=True))
    with pytest.raises(LabError, match="clock_control"):
        ncu.options(Section(SETTINGS | {"clock_control": "fast"}, "ncu."), by_stage=False)


def tool(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_tool_is_found_with_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tool(tmp_path, "nsys", "echo NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0")
    assert find("nsys", "2023.1") == str(path)
    with pytest.raises(LabError, match=r"2024\.5\.1\.113 is older than 2024\.6"):
        find("nsys", "2024.6")
    tool(tmp_path, "nsys", "echo nothing of use")
    with pytest.raises(LabError, match="says no version"):
        find("nsys", "2023.1")


def test_a_missing_tool_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("profiles.tool.shutil.which", lambda *_, **__: None)
    with pytest.raises(LabError, match="ncu is not installed; install Nsight Compute"):
        find("ncu", "2022.1")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==WARNING== No kernels were profiled.", "ncu.kernel"),
        ("error: disk quota exceeded", "disk quota"),
    ],
)
def test_what_a_tool_complains_about_becomes_one_line(tmp_path, said, remedy):
    path = tool(tmp_path, "ncu", f"echo before\necho '{said}' >&2\nexit 1")
    with pytest.raises(LabError) as caught:
        call([str(path)], tmp_path / "log")
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
    assert said in (tmp_path / "log").read_text(), "what the run itself printed is kept"


def test_a_missing_tool_does_not_lose_the_run(monkeypatch, capfd):
    started = []
    monkeypatch.setattr("profiles.tool.shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("profiles.__main__.subprocess.run", lambda command, check: started.append(command))
    assert main(["tool=nsys", "variant=baseline", "device=host", "model=tiny"]) == 2
    (command,) = started
    assert command[1:3] == ["-m", "profiles.target"]
    assert "tool=nsys" in command
    err = capfd.readouterr().err
    assert err.startswith("error: nsys is not installed; ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["tool=gdb"], "gdb"),
        (["variant=all"], "one stack"),
        (["position=-1"], "position"),
        (["nsys.option=[]"], "option"),
    ],
)
def test_mistakes_are_one_line(argv, said, capfd):
    assert main(["device=host", *argv]) == 2
    err = capfd.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1, err

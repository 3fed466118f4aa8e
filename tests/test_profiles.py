"""Profiles without a profiler: parsers of small documented exports, and tools that are missing or fail."""

import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest
from nsight_samples import CSV, write_export

from common.config.section import Section
from common.errors import LabError
from profiles import ncu, nsys
from profiles.__main__ import main
from profiles.tool import call, find


@pytest.fixture
def export(tmp_path):
    return write_export(tmp_path / "report.sqlite")


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
    ("drop", "message"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "recorded no kernel"),
        ("StringIds", "no export"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "cannot be read"),
    ],
)
def test_an_export_without_a_table_is_reported_in_one_line(export, drop, message):
    with sqlite3.connect(export) as base:
        base.execute(f"DROP TABLE {drop}")
    with pytest.raises(LabError, match=message):
        nsys.kernels(export)


def test_a_file_that_is_no_database_is_reported_in_one_line(tmp_path):
    (tmp_path / "x.sqlite").write_text("not a database, and long enough to be read as a header of one" * 20)
    with pytest.raises(LabError, match="cannot be read"):
        nsys.kernels(tmp_path / "x.sqlite")


def test_ncu_table_has_numbers_and_units_and_no_host_name():
    table = ncu.metrics(CSV)
    assert table.to_dict("split")["data"] == [
        ["decode", "GPU Speed Of Light Throughput", "DRAM Throughput", "%", 63.25],
        ["decode", "GPU Speed Of Light Throughput", "Elapsed Cycles", "cycle", 1234567.0],
        ["decode", "Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"],
    ]
    assert "somewhere" not in table.to_string()


@pytest.mark.parametrize("text", ["", "==ERROR== something else", '"ID","Kernel Name"\n"0","decode"\n'])
def test_output_without_a_table_is_reported_in_one_line(text):
    with pytest.raises(LabError, match=r"ncu printed no table|ncu's table lacks"):
        ncu.metrics(text)


NCU_SETTINGS = {
    "kernel": "decode",
    "skip": 3,
    "clock_control": "none",
    "cache_control": "none",
    "sections": ["Occupancy", "X"],
    "metrics": ["a.sum", "b.avg"],
    "options": [],
}


def test_ncu_options_select_one_launch_of_one_kernel():
    line = " ".join(ncu.options(Section(dict(NCU_SETTINGS), "ncu.")))
    for part in (
        "--kernel-name decode",
        "--launch-skip 3",
        "--launch-count 1",
        "--clock-control none",
        "--cache-control none",
        "--section Occupancy --section X",
        "--metrics a.sum,b.avg",
        "--profile-from-start off",
    ):
        assert part in line
    for control in ("clock_control", "cache_control"):
        with pytest.raises(LabError, match=f"unknown ncu.{control} 'fast'; known: "):
            ncu.options(Section(NCU_SETTINGS | {control: "fast"}, "ncu."))


def tool(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_tool_is_found_with_its_version(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tool(tmp_path, "nsys", "echo NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0")
    assert find("nsys") == str(path)
    tool(tmp_path, "nsys", "echo NVIDIA Nsight Systems version 2022.9.1.113-245134619542v0")
    with pytest.raises(LabError, match=r"2022\.9\.1\.113 is older than 2023\.1"):
        find("nsys")
    tool(tmp_path, "nsys", "echo nothing of use")
    with pytest.raises(LabError, match="prints no version"):
        find("nsys")
    tool(tmp_path, "nsys", "printf 'Nsight \\377 version 2024.5.1'")
    assert find("nsys") == str(path), "whatever else it prints"
    path.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(LabError, match=f"^{path} does not start: Exec format error; reinstall Nsight Systems$"):
        find("nsys")


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==WARNING== No kernels were profiled.", "ncu.kernel"),
        ("error: disk quota exceeded", "disk quota"),
        ("error: a kernel printed \\0377", "a kernel printed"),
    ],
)
def test_an_error_of_a_tool_is_reported_in_one_line(tmp_path, message, remedy):
    path = tool(tmp_path, "ncu", f"echo before\necho '{message}' >&2\nexit 1")
    with pytest.raises(LabError) as caught:
        call([str(path)], tmp_path / "log")
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
    kept = message.replace("\\0377", "\ufffd")  # a byte that is no UTF-8
    assert kept in (tmp_path / "log").read_text(), "the output of the run is kept"


@pytest.mark.parametrize(("name", "full"), [("nsys", "Nsight Systems"), ("ncu", "Nsight Compute")])
def test_without_the_tool_nothing_is_run(monkeypatch, capfd, name, full):
    monkeypatch.setattr("profiles.tool.shutil.which", lambda *_, **__: None)
    monkeypatch.setattr(subprocess, "run", lambda *command, **_: pytest.fail(f"{command}"))
    assert main([f"tool={name}", "variant=baseline", "device=ptx", "model=tiny"]) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"error: {name} is not installed; install {full}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["tool=gdb"], "gdb"),
        (["variant=ladder"], "one stack, not 7; give variant=NAME or stack=[A,B]: joint_heads, joint_heads+by_value, "),
        (["position=-1"], "position"),
        (["model=tiny", "position=64"], "position=64 needs a cache of 65 positions, and this one has 64"),
        (["model=tiny", "tool=ncu", "count=64"], "position=1 needs a cache of 65 positions, and this one has 64"),
        (["nsys.option=[]"], "option"),
        (["timing=full"], "timing= has no effect on a profile"),
        (["json=true"], "json= has no effect on a profile"),
    ],
)
def test_wrong_values_are_refused_in_one_line(argv, message, capfd):
    assert main(["device=ptx", *argv]) == 2
    err = capfd.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1, err

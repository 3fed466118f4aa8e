"""Command lines of nsys and ncu: each option against the documented names, and the tools if installed."""

import json
import shutil
import subprocess
import sys

import pytest
from nsight_samples import fake_tools

from common.config.cli import composed
from profiles.__main__ import main

REAL = {name: path for name in ("nsys", "ncu") if (path := shutil.which(name))}
ON_PTX = ("device=ptx", "model=tiny", "variant=baseline", "seed=7")


@pytest.fixture
def nsight(tmp_path, monkeypatch):
    """nsight(*argv): run `python -m profiles` with the two fakes on PATH; the exit code and the calls."""
    for variable, value in fake_tools(tmp_path).items():
        monkeypatch.setenv(variable, value)
    samples = tmp_path / "nsight"
    (samples / "start").unlink()

    def run(*argv: str) -> tuple[int, list[dict]]:
        code = main([*ON_PTX, f"results={tmp_path}/out/records.jsonl", *argv])
        calls = samples / "calls.jsonl"
        return code, [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    return run


@pytest.mark.parametrize(("tool", "commands"), [("nsys", ["profile", "export"]), ("ncu", ["profile", "profile"])])
def test_the_default_options_are_documented_ones(nsight, tool, commands, capfd):
    code, calls = nsight(f"tool={tool}")
    assert code == 0, capfd.readouterr()
    assert [call["command"] for call in calls] == commands
    program, options = calls[0]["program"], dict(calls[0]["options"])
    assert program[:3] == [sys.executable, "-m", "profiles.target"], "everything before belongs to the tool"
    cfg = composed("profiles", [override for override in program[3:] if not override.startswith("results=")])
    assert (cfg.tool, cfg.device.name, cfg.model.name, cfg.variant.name, cfg.seed) == (
        tool,
        "ptx",
        "tiny",
        "baseline",
        7,
    )
    if tool == "nsys":
        assert options["trace"] == "cuda,nvtx"
        assert (options["capture-range"], options["capture-range-end"]) == ("cudaProfilerApi", "stop")
    else:
        assert options["profile-from-start"] == "off"
        assert ["section", "SpeedOfLight"] in calls[0]["options"]
    # Capture by NVTX misses ranges: nsys unregistered strings, ncu all but push/pop ranges.
    assert not {name for name in options if name.startswith("nvtx-")}


@pytest.mark.parametrize(("tool", "shown"), [("nsys", "stage_qkv"), ("ncu", "DRAM Throughput")])
def test_the_table_has_the_findings_of_the_tool(nsight, tmp_path, tool, shown, capfd):
    assert nsight(f"tool={tool}")[0] == 0
    folder = tmp_path / "out" / "profiles" / f"{tool}-baseline-tiny-ptx-1"
    assert shown in (folder / "README.md").read_text()
    assert shown in capfd.readouterr().out


def test_the_program_is_started_by_the_tool_and_decodes(nsight, tmp_path, cpu_cache):
    (tmp_path / "nsight" / "start").touch()
    assert nsight("tool=nsys", "count=2", "validate=quick", f"cache={cpu_cache}")[0] == 0
    log = (tmp_path / "out" / "profiles" / "nsys-baseline-tiny-ptx-1" / "nsys.log").read_text()
    assert "baseline: PASSED, 2 tokens decoded from position 1 on" in log


@pytest.mark.parametrize(
    ("tool", "item", "name", "value"),
    [
        ("nsys", "--trace=cuda,nvtx,osrt", "trace", "cuda,nvtx,osrt"),
        ("nsys", "--env-var=A=b c,D=e", "env-var", "A=b c,D=e"),
        ("ncu", "--replay-mode=application", "replay-mode", "application"),
        ("ncu", "--kernel-id=::regex:a b,c:1", "kernel-id", "::regex:a b,c:1"),
        ("ncu", "--nvtx", "nvtx", ""),
    ],
)
def test_an_option_of_the_user_is_one_argument(nsight, tool, item, name, value):
    code, calls = nsight(f"tool={tool}", f'{tool}.options=["{item}"]')
    assert code == 0
    assert [name, value] in calls[0]["options"]
    assert calls[0]["program"][1:3] == ["-m", "profiles.target"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ("tool=nsys", "nsys.options=['--trace=cuda',nvtx]"),
            "'nvtx' in nsys.options is neither --name nor --name=value",
        ),
        (("tool=nsys", "nsys.options=[-t,'cuda,nvtx']"), "'-t' in nsys.options"),
        (("tool=nsys", "nsys.options='--trace=cuda'"), "nsys.options=--trace=cuda is not a list"),
        (("tool=timeline", "nsys.options=x"), "nsys.options=x is not a list"),
        (("tool=nsys", "ncu.skip=-1"), "ncu.skip=-1 is not a whole number"),
        (("tool=ncu", "ncu.options=[--set,full]"), "'full' in ncu.options"),
    ],
)
def test_a_list_that_would_be_split_is_refused_before_any_work(nsight, argv, message, capfd):
    code, calls = nsight(*argv)
    err = capfd.readouterr().err
    assert (code, calls) == (2, [])
    assert err.startswith(f"error: {message}"), err
    assert err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("tool=nsys", "nsys.options=['--tarce=cuda']"), "nsys ended with 1: unrecognised option '--tarce=cuda'"),
        (("tool=nsys", "nsys.options=[--trace]"), "nsys ended with 1: the required argument for option '--trace' is"),
        (("tool=ncu", "ncu.options=['--sett=full']"), "ncu ended with 1: ==ERROR== unrecognised option '--sett=full'"),
    ],
)
def test_an_error_of_the_tool_is_quoted(nsight, argv, message, capfd):
    code, calls = nsight(*argv)
    err = capfd.readouterr().err.splitlines()[-1]
    assert (code, calls) == (2, [])
    assert err.startswith(f"error: {message}"), err


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_a_job_of_a_multirun_profiles_its_own_stack(nsight, tool):
    code, calls = nsight("-m", f"tool={tool}", "variant=baseline,vec128")
    assert code == 0
    programs = [call["program"] for call in calls if call["program"][1:2] == ["-m"]]
    assert [[word for word in program if word.startswith("variant=")] for program in programs] == [
        ["variant=baseline"],
        ["variant=vec128"],
    ]
    assert not any("--multirun" in program or "-m" in program[3:] for program in programs)


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_a_percent_sign_in_the_folder_is_kept(nsight, tmp_path, tool):
    assert nsight(f"tool={tool}", f"results={tmp_path}/50%h/records.jsonl")[0] == 0
    assert (tmp_path / "50%h" / "profiles" / f"{tool}-baseline-tiny-ptx-1" / f"report.{tool}-rep").exists()


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_a_report_of_an_earlier_run_is_not_used(nsight, tmp_path, tool, capfd):
    folder = tmp_path / "out" / "profiles" / f"{tool}-baseline-tiny-ptx-1"
    assert nsight(f"tool={tool}")[0] == 0
    (tmp_path / "nsight" / "captures nothing").touch()
    capfd.readouterr()
    assert nsight(f"tool={tool}")[0] == 2
    assert "d nothing; use device=cuda" in capfd.readouterr().err
    assert not (folder / f"report.{tool}-rep").exists()


@pytest.mark.skipif(not REAL, reason="needs nsys or ncu")
@pytest.mark.parametrize("tool", REAL)
def test_the_installed_tool_lists_every_option_that_is_used(nsight, tool):
    for call in nsight(f"tool={tool}")[1]:
        command = [call["command"]] if tool == "nsys" else []
        text = subprocess.run([REAL[tool], *command, "--help"], capture_output=True, text=True).stdout
        assert not [name for name, _ in call["options"] if f"--{name}" not in text], command

"""Provenance, checked against git itself and against a fake NVML."""

import getpass
import json
import os
import platform
import re
import socket
import sys
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import pytest
from git_checkout import commit, git

from common.devices.nvml import Gpu, disturbances, of_this_run
from common.errors import LabError
from common.record import provenance
from common.record.provenance import code_sha
from common.record.store import Store
from experiments.processes import Child

pytestmark = pytest.mark.covers


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


@pytest.fixture(autouse=True)
def _no_given_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_COMMIT", raising=False)


def test_commit_and_dirty_flag(checkout):
    assert provenance.git(checkout) == {"commit": None, "dirty": False}
    (checkout / "a.cu").write_text("1")
    assert provenance.git(checkout) == {"commit": None, "dirty": True}
    head = commit(checkout)
    assert provenance.git(checkout) == {"commit": head, "dirty": False}
    (checkout / "a.cu").write_text("2")
    assert provenance.git(checkout) == {"commit": head, "dirty": True}
    head = commit(checkout)
    evidence = checkout / provenance.EVIDENCE
    evidence.mkdir(parents=True)
    (evidence / "records.jsonl").write_text("{}\n")
    assert provenance.git(checkout) == {"commit": head, "dirty": False}


def test_without_a_checkout_or_git_the_commit_is_none(checkout, tmp_path_factory, monkeypatch):
    inner = checkout / "unpacked"
    inner.mkdir()
    assert provenance.git(inner) is None  # the commit of an enclosing repository would be wrong
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    assert provenance.git(checkout) is None


def test_a_copy_takes_its_commit_from_the_environment_with_and_without_git(checkout, monkeypatch):
    inner = checkout / "unpacked"
    inner.mkdir()
    commit(checkout)
    other = "0123456789" * 4
    (checkout / "a.cu").write_text("copied over an older commit")
    for copy in (inner, checkout):
        monkeypatch.setenv("LAB_COMMIT", other)
        assert provenance.git(copy) == {"commit": other, "dirty": False}
        monkeypatch.setenv("LAB_COMMIT", f"{other}+")
        assert provenance.git(copy) == {"commit": other, "dirty": True}
    for wrong in ("main", other[:12], other + "0"):
        monkeypatch.setenv("LAB_COMMIT", wrong)
        with pytest.raises(LabError, match=f"LAB_COMMIT={wrong} is not a commit; give LAB_COMMIT="):
            provenance.git(inner)
        with pytest.raises(LabError, match=f"LAB_COMMIT={wrong} is not a commit"):
            Store(checkout / "r.jsonl").check()  # before any work


def test_a_checkout_in_a_folder_whose_name_is_no_utf_8(checkout):
    folder = checkout / os.fsdecode(b"\xe4")
    folder.mkdir()
    git(folder, "init", "-q")
    assert provenance.git(folder) == {"commit": None, "dirty": False}


def test_it_is_complete_and_has_no_host_or_user_name(monkeypatch):
    monkeypatch.setattr(
        sys, "orig_argv", ["python", "-m", "experiments", f"weights={Path.home()}/model", "cache=/srv/someone/kernels"]
    )
    monkeypatch.setenv("HOME", str(Path.home()))
    found = provenance.provenance()
    assert found["python"] == platform.python_version()
    assert found["machine"] == platform.machine()
    # The version of the package: a build for CUDA may name its CUDA in `torch.__version__` only.
    assert found["torch"].partition("+")[0] == __import__("torch").__version__.partition("+")[0]
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["nvrtc"])
    assert abs(datetime.fromisoformat(found["time"]) - datetime.now(UTC)) < timedelta(minutes=5)
    text = json.dumps(found)
    if len(str(Path.home())) > 1:
        assert found["command"] == "python -m experiments weights=~/model cache=.../kernels"
        assert str(Path.home()) not in text
    for private in {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}:
        assert not re.search(rf"\b{re.escape(private)}\b", text)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["weights=/srv/some one/model"], "weights=.../model"),
        (["cache=/home/someone", "results=/home/someone/r"], "cache=~ results=~/r"),
        (["cache=/home/someones/r", "results=/home/other"], "cache=.../r results=.../other"),
        (["-m", "seed=1,2", "weights=/srv/a/x,/srv/b/y/"], "-m seed=1,2 weights=.../x,.../y/"),
        (["/srv/someone/program.py", "owner/name"], ".../program.py owner/name"),
        (['args=["weights=/srv/a/x","cache=/srv/b"]'], """'args=["weights=.../x","cache=.../b"]'"""),
        (["prompt='/srv/some one/x'", "format=int4:128/int8"], """'prompt='"'"'.../x'"'"'' format=int4:128/int8"""),
    ],
)
def test_a_command_names_no_folder_outside_of_the_home(words, shown, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    monkeypatch.setenv("HOME", "/home/someone")
    assert provenance._command() == f"python {shown}"


def test_without_a_driver_there_is_no_gpu(monkeypatch):
    pynvml = pytest.importorskip("pynvml")

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert Gpu.find("0000:01:00.0") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpu.find("0000:01:00.0") is None


def test_facts_and_readings_in_their_units(monkeypatch):
    nvml = pytest.importorskip("pynvml")

    def unsupported(*_: object) -> None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)

    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByPciBusId": lambda bus: {b"0000:01:00.0": "handle"}[bus],
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=5 << 30),
        "nvmlDeviceGetEnforcedPowerLimit": unsupported,
        "nvmlDeviceGetName": lambda handle: "NVIDIA Something",
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetMaxClockInfo": lambda handle, which: {nvml.NVML_CLOCK_SM: 1980, nvml.NVML_CLOCK_MEM: 3201}[which],
        "nvmlDeviceGetClockInfo": lambda handle, which: {nvml.NVML_CLOCK_SM: 1500, nvml.NVML_CLOCK_MEM: 3200}[which],
        "nvmlDeviceGetPowerUsage": lambda handle: 123_456,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: ["the lab's own", "another", "one more"],
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: (
            nvml.nvmlClocksThrottleReasonSwPowerCap
            | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonGpuIdle
        ),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(nvml, name, answer)
    monkeypatch.setattr("common.devices.nvml.of_this_run", lambda: 1)  # not that of the test runner
    gpu = Gpu.find("0000:01:00.0")
    assert gpu.properties() == {
        "name": "NVIDIA Something",
        "arch": "sm_90",
        "memory_bytes": 5 << 30,
        "driver": "580.1",
        "power_limit_w": None,
        "max_sm_mhz": 1980,
        "max_memory_mhz": 3201,
    }
    monkeypatch.setattr(nvml, "nvmlSystemGetDriverVersion", lambda: unsupported())
    assert gpu.properties()["driver"] is None
    assert gpu.reading() == {
        "sm_mhz": 1500,
        "memory_mhz": 3200,
        "power_w": 123.456,
        "temperature_c": 61,
        "other_processes": 2,
        "throttled": ["power cap", "hardware thermal"],
    }


def counts(connection):
    for _ in iter(connection.recv, None):
        connection.send(of_this_run())


def test_workers_of_a_run_are_no_foreign_processes():
    """Two of them share a GPU in turn, and NVML lists both. They are spawned, as those of a run are."""

    def answer(worker):
        worker.send("")
        return worker.connection.recv()

    workers = [Child(counts, context=get_context("spawn")) for _ in range(3)]
    other = Popen([sys.executable, "-c", "input()"], stdin=PIPE)
    try:
        assert [answer(worker) for worker in workers] == [2, 2, 2], "the third has another GPU"
        workers[1].kill()
        workers[2].kill()
        assert answer(workers[0]) == 1
    finally:
        other.kill()
        other.communicate()
        for worker in workers:
            worker.kill()


def test_a_change_of_a_source_makes_answers_old(tmp_path):
    (tmp_path / "conf").mkdir()
    (yaml := tmp_path / "conf" / "a.yaml").write_text("published: none\n")
    before = code_sha.__wrapped__(tmp_path)
    yaml.write_text("launch: plain\n")
    assert code_sha.__wrapped__(tmp_path) != before


def test_disturbances_of_a_measurement_are_listed():
    calm = {"sm_mhz": 1980, "memory_mhz": 2619, "other_processes": 0, "throttled": []}
    assert disturbances([]) == ()
    assert disturbances([calm] * 3) == ()
    assert disturbances([calm, calm | {"throttled": ["power cap"]}]) == ("throttled (power cap) in 1 of 2 rounds",)
    assert disturbances([calm, calm | {"other_processes": 2}]) == ("2 other process(es) on the GPU",)
    assert disturbances([calm, calm | {"sm_mhz": 1410}]) == ("SM clock between 1410 and 1980 MHz",)
    assert disturbances([calm | {"sm_mhz": None, "memory_mhz": None, "other_processes": None}]) == ()

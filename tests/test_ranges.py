"""NVTX ranges, received as nsys does it: by a library that NVTX loads."""

import builtins
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.devices.nvtx import annotate, title
from common.errors import LabError

pytestmark = pytest.mark.covers

HERE = Path(__file__).parent

PROGRAM = """
from common.devices.nvtx import annotate, title

with annotate(title("compile", ())):
    pass
with annotate(title("validate", ("redundant_rmsnorm", "vec128"))):
    with annotate("inner"):
        pass
try:
    with annotate("fails"):
        raise RuntimeError
except RuntimeError:
    pass
for number in (1, 2):
    with annotate(title("measure", ("vec128",), f"round {number}")):
        pass
"""


@pytest.fixture(scope="module")
def injection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    library = tmp_path_factory.mktemp("nvtx") / "libinjection.so"
    source = HERE / "nvtx_injection.cpp"
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def received(injection: Path, log: Path, program: str) -> list[tuple[str, ...]]:
    """(call, domain, kind of message, message) of every NVTX call that `program` makes."""
    environment = os.environ | {"NVTX_INJECTION64_PATH": str(injection), "LAB_NVTX_LOG": str(log)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=HERE.parent)
    return [tuple(line.split("\t")) for line in log.read_text().splitlines()]


def test_ranges_reach_a_tool_in_order_nested_and_in_the_labs_domain(injection, tmp_path):
    def push(message: str) -> tuple[str, ...]:
        return ("push", "lab", "registered", message)

    pop = ("pop", "lab", "", "")
    assert received(injection, tmp_path / "log", PROGRAM) == [
        push("compile baseline"),
        pop,
        push("validate vec128 [redundant_rmsnorm,vec128]"),
        push("inner"),
        pop,
        pop,
        push("fails"),
        pop,
        push("measure vec128 [vec128] round 1"),
        pop,
        push("measure vec128 [vec128] round 2"),
        pop,
    ]


def test_titles_of_ranges():
    assert title("compile", ()) == "compile baseline"
    assert title("warm-up", ("a", "b")) == "warm-up b [a,b]"
    assert title("measure", ("a", "b"), "round 3") == "measure b [a,b] round 3"


def test_a_missing_package_is_reported_in_one_line(monkeypatch):
    real = builtins.__import__

    def without_nvtx(name: str, *rest, **named):
        if name == "nvtx":
            raise ModuleNotFoundError("No module named 'nvtx'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_nvtx)
    with pytest.raises(LabError, match="make wheelhouse"), annotate("compile baseline"):
        pass

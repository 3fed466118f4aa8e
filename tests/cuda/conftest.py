"""Fixtures of tests of the CUDA path: on the GPU, and where there is none on the stand-in of tests/standin."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nsight_samples import CSV, write_export
from standin import installed

from common.config.device_choice import find_gpu
from common.errors import LabError
from common.model.shapes import Model

FAKE_NSIGHT = Path(__file__).resolve().parent.parent / "fake_nsight.py"
ABSENT = ("no NVIDIA driver", "the driver reports no GPU")  # causes with which find_gpu says that there is none
QWEN = Model("qwen3_0_6b", 1024, 3072, 28, 16, 8, 128, 151936, 2048, 1e6, 1e-6, True)


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[str]:
    """`real`, or `standin`. A driver that does not work is an error of every test: nothing falls back silently."""
    try:
        find_gpu()
    except LabError as error:
        if not error.cause.startswith(ABSENT):
            raise
    else:
        yield "real"
        return
    with installed():
        yield "standin"


@pytest.fixture(scope="module")
def full(gpu, tiny) -> Model:
    """The model at full size, which only a real GPU can hold."""
    return QWEN if gpu == "real" else tiny


@pytest.fixture(scope="module")
def quick(gpu) -> bool:
    """Whether three scenarios have to do where all would take too long: the host device's own tests run all."""
    return gpu != "real"


@pytest.fixture(scope="module")
def grid(gpu) -> int | None:
    """Blocks of a grid, where a test does not say: as many as the stack asks for, which takes the stand-in too long."""
    return None if gpu == "real" else 3


@pytest.fixture
def profilers(gpu, tmp_path, monkeypatch) -> None:
    """On the stand-in: tests/fake_nsight.py as nsys and ncu, which start the program that they are given."""
    if gpu == "real":
        return
    samples = tmp_path / "nsight"
    samples.mkdir()
    for name in ("nsys", "ncu"):
        tool = tmp_path / name
        tool.write_text(f"#!{sys.executable}\n{FAKE_NSIGHT.read_text()}")
        tool.chmod(0o755)
    (samples / "start").touch()
    (samples / "details.csv").write_text(CSV)
    write_export(samples / "report.sqlite")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_NSIGHT", str(samples))

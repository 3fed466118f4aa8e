"""Fixtures of tests of the CUDA path: on the GPU, and where there is none on the stand-in of tests/standin."""

import sys
from collections.abc import Iterator

import pytest
from nsight_samples import fake_tools
from standin import installed

from common.config.device_choice import find_gpu
from common.errors import LabError
from common.model.shapes import Model

# Causes with which find_gpu says that there is none.
ABSENT = ("no NVIDIA driver", "the driver reports no GPU", "the GPU cannot be used: cudaErrorNoDevice")
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
        yield "standin" if "standin_gpu" in sys.modules else "real"  # in this process from its start
        return
    with installed():
        yield "standin"


@pytest.fixture(scope="module")
def full(gpu, tiny) -> Model:
    """The model at full size, which only a real GPU can hold."""
    return QWEN if gpu == "real" else tiny


@pytest.fixture(scope="module")
def quick(gpu) -> bool:
    """True if three scenarios are enough, as all would take too long: the PTX device's own tests run all."""
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
    for name, value in fake_tools(tmp_path).items():
        monkeypatch.setenv(name, value)

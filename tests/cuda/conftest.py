"""Fixtures of tests that need a GPU; without one each test skips with the reason."""

import pytest

from common.config.device_choice import find_gpu
from common.errors import LabError
from common.model.shapes import Model


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    try:
        find_gpu()
    except LabError as error:
        pytest.skip(f"needs a CUDA GPU: {error.cause}")


@pytest.fixture(scope="session")
def full(gpu) -> Model:
    """The model at full size."""
    return Model("qwen3_0_6b", 1024, 3072, 28, 16, 8, 128, 151936, 2048, 1e6, 1e-6, True)


@pytest.fixture(scope="session")
def quick(gpu) -> bool:
    """Whether three scenarios have to do where all would take too long."""
    return False


@pytest.fixture(scope="session")
def grid(gpu) -> int | None:
    """Blocks of a grid, where a test does not say; None: as many as the stack asks for."""
    return None

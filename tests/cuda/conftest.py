"""Fixtures of tests that need a GPU; without one each test skips with the reason."""

from collections.abc import Callable, Iterator

import pytest
import torch

from common.compile.source import Source
from common.config.device_choice import find_gpu
from common.errors import LabError, Refused
from common.model.layout import Layout


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    try:
        find_gpu()
    except LabError as error:
        pytest.skip(f"needs a CUDA GPU: {error.cause}")


@pytest.fixture(scope="session")
def device(gpu):
    from common.devices.cuda import CudaDevice

    return CudaDevice()


@pytest.fixture
def open_session(device) -> Iterator[Callable]:
    """open_session(source, weights, blocks=None): a session that is closed after the test."""
    opened = []

    def open_(source: Source, weights: torch.Tensor, blocks: int | None = None):
        try:
            program = device.compile(source)
        except Refused as error:
            pytest.skip(f"needs a newer CUDA GPU: {error.cause}")
        opened.append(device.session(program, Layout(source.model), weights, blocks))
        return opened[-1]

    yield open_
    for session in opened:
        session.close()

"""Kernels on the host device, opened and closed for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from common.devices.host import HostDevice, HostSession
from common.layout import Layout
from common.model import Model
from common.source import Source, build
from common.weights import load

Open = Callable[..., HostSession]


@pytest.fixture
def synthetic(host_cache: Path) -> Callable[[Model, int], torch.Tensor]:
    """Seeded synthetic weights of a model: flat bf16, as the kernels read them."""
    return lambda model, seed: load("synthetic", model, None, host_cache, seed)[2].flat


@pytest.fixture
def open_session(host_cache: Path) -> Iterator[Open]:
    """open_session(source, weights, blocks=, schedule=, workers=): a session that is closed after the test."""
    opened: list[HostSession] = []

    def open_(
        source: Source, weights: torch.Tensor, blocks: int = 8, schedule: int = 0, workers: int | None = None
    ) -> HostSession:
        device = HostDevice(host_cache, seed=schedule, workers=workers)
        opened.append(device.session(device.compile(source), Layout(source.model), weights, blocks))
        return opened[-1]

    yield open_
    for session in opened:
        session.close()


@pytest.fixture
def baseline(tiny: Model) -> Source:
    return build([], tiny)

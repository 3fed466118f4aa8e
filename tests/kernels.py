"""Fixtures of tests of kernels: sessions on the PTX device, opened and closed for each test.

A conftest.py imports those that its folder uses.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from bare_kernel import bare_kernel
from composed import Composed, compare_bits

from common.compile.source import Source, build
from common.devices.ptx.device import PtxDevice
from common.devices.ptx.session import CompiledPtx, PtxSession
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.stages import STAGES
from common.model.weights import load
from common.validate.check import validate
from common.validate.scenarios import Scenario, scenarios
from common.validate.snapshot import Snapshot
from experiments.generation.engine import Engine


class OpenSession(PtxSession):
    """A session whose scratch a test may write, and whose stages it may launch."""

    def run_stage(self, stage: str, layer: int) -> None:
        """Run one stage of one layer on the current buffers. The source must have a kernel per stage."""
        self._run_launches([(STAGES.index(stage), layer)])

    def write_scratch(self, values: torch.Tensor) -> None:
        """Overwrite scratch: float32, [layout.scratch_size]."""
        self._buffers["scratch"].tensor.copy_(values)


class OpenDevice(PtxDevice):
    """The PTX device with such sessions. It keeps the last program: many tests open one kernel again and again."""

    sessions = OpenSession
    _last: ClassVar[tuple[Any, CompiledPtx] | None] = None

    def compile(self, source: Source) -> CompiledPtx:
        key = self.cache, self.arch, source.sha
        if not self._last or self._last[0] != key:
            OpenDevice._last = key, super().compile(source)
        return replace(self._last[1], source=source)


Open = Callable[..., OpenSession]


@pytest.fixture
def synthetic(cpu_cache: Path) -> Callable[[Model, int], torch.Tensor]:
    """Seeded synthetic weights of a model: flat bf16, in the layout of the kernels."""
    return lambda model, seed: load("synthetic", model, None, cpu_cache, seed)[2].flat


@pytest.fixture
def open_session(cpu_cache: Path) -> Open:
    """open_session(source, weights, blocks=, schedule=, races=): a session; schedule is the seed of every order."""

    def open_(
        source: Source, weights: torch.Tensor, blocks: int = 8, schedule: int = 0, races: bool = False
    ) -> OpenSession:
        device = OpenDevice(cpu_cache, seed=schedule, races=races)
        return device.session(device.compile(source), weights, blocks)

    return open_


@pytest.fixture
def proved(open_session: Open, synthetic: Callable[[Model, int], torch.Tensor], seed: int) -> Callable[..., None]:
    """proved(composed, model, quick=, weights=): a stack equals the reference, and its parent bit for bit."""

    def prove(composed: Composed, model: Model, quick: bool = True, weights: torch.Tensor | None = None) -> None:
        weights = synthetic(model, seed) if weights is None else weights
        session = open_session(composed.source(model), weights, schedule=seed)
        tokens = session.layout.tokens
        verdict = validate(session, weights, scenarios(model, seed, weights, quick, tokens), seed)
        assert verdict.passed, verdict
        if composed.root != composed:
            root = open_session(composed.root.source(model), weights, blocks=5, schedule=seed)
            different = compare_bits(session, root, scenarios(model, seed, weights, True, tokens))
            assert different is None, f"{different}; seed {seed}"

    return prove


@pytest.fixture
def alone(open_session: Open) -> Callable[[Engine, Sequence[int], int], list[int]]:
    """alone(engine, prompt, tokens): the ids by a kernel that begins where the prompt ends, with the engine's entries.

    They are judged by themselves: two legal roundings of one entry may make two answers.
    """

    def decode(engine: Engine, prompt: Sequence[int], tokens: int) -> list[int]:
        session = open_session(build([], engine.model), engine.setup.packed.flat)
        session.reset(prompt, len(prompt) - 1, engine.session.cache.entries(0, engine.positions), forced=len(prompt))
        session.run(tokens)
        at = session.layout.state["ids"].offset + len(prompt)
        return session.state()[at : at + tokens].tolist()

    return decode


@pytest.fixture
def same_in_any_order(open_session: Open) -> Callable[[Source, torch.Tensor, Scenario, Iterable[int]], None]:
    """Assert that a kernel leaves the same bits for any order of lanes, warps and blocks."""

    def check(source: Source, weights: torch.Tensor, start: Scenario, schedules: Iterable[int]) -> None:
        results = []
        for schedule in schedules:
            session = open_session(source, weights, blocks=7, schedule=schedule)
            session.reset(start.ids, start.position, start.history, len(start.ids))
            session.run(start.steps)
            results.append(Snapshot.of(session))
        for other in results[1:]:
            for buffer in ("scratch", "state"):
                first, second = getattr(results[0], buffer), getattr(other, buffer)
                assert torch.equal(first.view(torch.uint8), second.view(torch.uint8)), (buffer, schedules)
            assert results[0].cache.difference(other.cache) is None, schedules

    return check


@pytest.fixture
def baseline(tiny: Model) -> Source:
    return build([], tiny)


@pytest.fixture
def launch(cpu_cache: Path, tiny: Model) -> Callable[..., OpenSession]:
    """launch(body, ...): runs the body once as a kernel, with `token` as its token; returns the session."""

    def run(
        body: str,
        shared: str = "",
        blocks: int = 3,
        threads: int = 64,
        seed: int = 0,
        timeout: float = 30,
        token: int = 1,
        load: str | None = None,
        races: bool = False,
        members: str = "",
    ) -> OpenSession:
        device = OpenDevice(cpu_cache, seed=seed, timeout=timeout, races=races)
        layout = Layout(tiny)
        weights = torch.arange(layout.weights_size, dtype=torch.float32).remainder(97).bfloat16()
        source = bare_kernel(tiny, body, shared, threads, load, members)
        session = device.session(device.compile(source), weights, blocks)
        session.reset([token], 0)
        session.run()
        return session

    return run

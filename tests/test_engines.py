"""Timing of other engines, with a clock that the engine itself moves; and which engines compile."""

from types import SimpleNamespace

import pytest
import torch

from experiments.engines import adapters
from experiments.engines.adapters import RUNS, WARM_UPS, Workload, timed, transformers_compiled


def workload(monkeypatch, device: str) -> Workload:
    monkeypatch.setattr(Workload, "device", device)
    return Workload(SimpleNamespace(config=SimpleNamespace(host=device == "cpu")), (1, 2), 8, None)


class Engine:
    """Takes 2 s for the first token and 1 s for each later one; compiles in its first runs of each length."""

    def __init__(self, monkeypatch) -> None:
        self.now, self.calls = 0.0, []
        monkeypatch.setattr(adapters.time, "perf_counter", lambda: self.now)

    def generate(self, tokens: int) -> list[int]:
        self.calls.append(tokens)
        self.now += 1.0 + tokens
        if self.calls.count(tokens) <= 2:
            self.now += 100
        if self.calls.count(tokens) == WARM_UPS + 2:
            self.now += 50  # a disturbance of one run
        return [7] * tokens


def test_times_are_medians_after_the_warm_up(monkeypatch):
    engine = Engine(monkeypatch)
    monkeypatch.setattr(adapters, "_sync", lambda work: None)
    ran = timed(engine.generate, workload(monkeypatch, "cuda"))
    assert (ran.ids, ran.first, ran.whole, ran.rate) == ([7] * 8, 2.0, 9.0, 1.0)
    assert [engine.calls.count(tokens) for tokens in (1, 8)] == [WARM_UPS + RUNS] * 2
    assert engine.calls[0] == 8  # caches get their final size first


def test_on_a_cpu_only_the_ids_count(monkeypatch):
    engine = Engine(monkeypatch)
    assert timed(engine.generate, workload(monkeypatch, "cpu")).ids == [7] * 8
    assert sorted(engine.calls) == [1, 8]


def test_the_step_of_a_static_cache_is_compiled_by_transformers_alone(monkeypatch):
    given = []

    def generate(prompt: torch.Tensor, max_new_tokens: int, **options: object) -> torch.Tensor:
        given.append(options["cache_implementation"])
        return torch.cat((prompt, torch.zeros(1, max_new_tokens, dtype=torch.long)), 1)

    model = SimpleNamespace(generate=generate, forward=generate)
    monkeypatch.setattr(Workload, "transformers_model", lambda work: model)
    monkeypatch.setattr(adapters, "_need_gpu", lambda work: None)
    monkeypatch.setattr(torch, "compile", lambda *given, **options: pytest.fail("compiled twice"))
    assert transformers_compiled(workload(monkeypatch, "cpu")).ids == [0] * 8
    assert set(given) == {"static"}

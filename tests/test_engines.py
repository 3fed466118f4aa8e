"""Timing of the arms, with a clock that an engine itself moves."""

from types import SimpleNamespace

import pytest

from experiments.engines import race
from experiments.engines.race import RUNS, WARM_UPS, Answer, Workload, timed


def workload(monkeypatch, device: str) -> Workload:
    monkeypatch.setattr(Workload, "device", device)
    return Workload(SimpleNamespace(), ((1,), (1, 2)), 8)


class Engine:
    """Takes 5 s to open a prompt, 2 s for the first token and 1 s for each later one; compiles in its first runs."""

    def __init__(self, monkeypatch) -> None:
        self.now, self.calls = 0.0, []
        monkeypatch.setattr(race.time, "perf_counter", lambda: self.now)

    def opened(self, prompt):
        self.now += 5.0
        self.calls.append([])
        return self.generate

    def generate(self, tokens: int) -> Answer:
        calls = self.calls[-1]
        calls.append(tokens)
        self.now += 1.0 + tokens
        if calls.count(tokens) <= 2:
            self.now += 100
        if calls.count(tokens) == WARM_UPS + 2:
            self.now += 50  # a disturbance of one run
        return Answer([7] * tokens)


def test_times_are_medians_after_the_warm_up(monkeypatch):
    engine = Engine(monkeypatch)
    monkeypatch.setattr(race, "_sync", lambda work: None)
    ran = timed(engine.opened, workload(monkeypatch, "cuda"))
    assert len(engine.calls) == len(ran.runs) == 2
    for run, calls in zip(ran.runs, engine.calls, strict=True):
        assert (run.answer.ids, run.first, run.whole, run.rate) == ([7] * 8, 2.0, 9.0, 1.0)
        assert [calls.count(tokens) for tokens in (1, 8)] == [WARM_UPS + RUNS] * 2
        assert calls[0] == 8  # caches get their final size first


def test_on_a_cpu_only_the_answers_count(monkeypatch):
    engine = Engine(monkeypatch)
    ran = timed(engine.opened, workload(monkeypatch, "cpu"))
    assert [run.answer.ids for run in ran.runs] == [[7] * 8] * 2
    assert sorted(engine.calls[0]) == [1, 8]


@pytest.mark.parametrize(("answer", "rate"), [(Answer([7]), None), (Answer(text="seven ate", count=3), 1.0)])
def test_a_rate_is_of_the_tokens_that_came(answer, rate):
    assert race.Run(answer, 1.0, 3.0).rate == rate

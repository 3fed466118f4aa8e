"""Timing of the arms, with a clock that an engine itself moves."""

from itertools import count
from types import SimpleNamespace

import pytest

from experiments.engines import race
from experiments.engines.race import RUNS, WARM_UPS, Workload, timed

pytestmark = pytest.mark.covers


def workload(monkeypatch, device: str) -> Workload:
    monkeypatch.setattr(Workload, "device", device)
    return Workload(SimpleNamespace(), ((1,), (1, 2)), 8)


class Engine:
    """Takes 5 s to open a prompt, 2 s for the first token and 1 s for each later one; compiles while it warms up."""

    def __init__(self, monkeypatch) -> None:
        self.now, self.calls = 0.0, []
        monkeypatch.setattr(race.time, "perf_counter", lambda: self.now)

    def opened(self, prompt):
        self.now += 5.0
        self.calls.append(0)
        return self.generate

    def generate(self, arrived) -> list[int]:
        self.calls[-1] += 1
        self.now += 100 if self.calls[-1] <= WARM_UPS else 2
        # A prompt's own time differs by more than all later tokens take, and one of those runs is disturbed.
        self.now += 30 * (self.calls[-1] == WARM_UPS + 1)
        arrived(1)
        self.now += 14 if self.calls[-1] == WARM_UPS + 2 else 7
        return [7] * 8


def test_times_are_medians_after_the_warm_up(monkeypatch):
    engine = Engine(monkeypatch)
    ran = timed(engine.opened, workload(monkeypatch, "cuda"))
    assert len(engine.calls) == len(ran.runs) == 2
    for run, calls in zip(ran.runs, engine.calls, strict=True):
        assert (run.ids, run.first, run.rate, run.spread) == ([7] * 8, 2.0, 1.0, 0.5)
        assert calls == WARM_UPS + RUNS


def test_on_a_cpu_only_the_answers_count(monkeypatch):
    engine = Engine(monkeypatch)
    ran = timed(engine.opened, workload(monkeypatch, "cpu"))
    assert [run.ids for run in ran.runs] == [[7] * 8] * 2
    assert engine.calls == [1, 1]


ENDS = {
    "one token": ([7], 1, None),
    "two tokens at once": ([7] * 8, 2, 3.0),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_rate_is_of_the_tokens_behind_the_first_that_came(name, monkeypatch):
    ids, first, rate = ENDS[name]
    clock = count(step=2)
    monkeypatch.setattr(race.time, "perf_counter", lambda: next(clock))

    def generate(arrived) -> list[int]:
        arrived(first)
        return ids

    ran = timed(lambda prompt: generate, workload(monkeypatch, "cuda"))
    assert [(run.first, run.rate) for run in ran.runs] == [(2, rate)] * 2

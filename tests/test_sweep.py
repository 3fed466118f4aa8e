"""Sweep without worker processes: what it sends them, what it leaves for later, and what it need not do again."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import WORST, timed

from common.config import budget
from common.config.budget import Budget
from common.config.device_choice import DeviceChoice
from common.errors import Unfinished
from experiments.run.describe import Findings
from experiments.run.setup import Setup
from experiments.run.sweep import Sweep, places
from experiments.tables.progress import Quiet

GPU = {"device": "cuda", "gpu": "A GPU", "compiler": "NVRTC 13"}
VERDICT = {"mismatch": None, "worst": WORST, "steps": 7, "seed": 5}


class Workers:
    """In place of the pool: every job takes ten virtual seconds and passes. `sent`: the jobs that began."""

    setup: Setup

    def __init__(self) -> None:
        self.now, self.sent, self.running, self.status = 0.0, list[dict[str, Any]](), list[int](), "PASSED"
        self.verdict: str | None = None  # on a time, where there is one

    def describe(self) -> dict[str, str]:
        return GPU

    def run(self, jobs, notify: Callable[..., None], fits: Callable[[int], bool]) -> Iterator[tuple[int, Any, Any]]:
        for number, job in enumerate(jobs):
            if fits(number):
                self.sent.append(job)
                self.now += 10
                sha = self.setup.source(job["stack"]).sha
                found = Findings(self.status, source_sha=sha, blocks=4).as_record() | {"verdict": VERDICT}
                if self.verdict:
                    (timed_,) = timed("any", [])["latencies"]
                    found["latencies"] = [timed_ | {"verdict": self.verdict}]
                yield number, GPU, found | {"reason": "" if self.status == "PASSED" else "stage down"}


@pytest.fixture
def sweep(configured, cpu_cache: Path, tmp_path: Path, seed, monkeypatch):
    """sweep(workers, *overrides, **changes of the configuration): the sweep, when it has run, of three stacks."""
    common = ["model=tiny", f"seed={seed}", "resume=true", f"results={tmp_path}/r.jsonl", f"cache={cpu_cache}"]
    monkeypatch.setattr("experiments.run.describe.provenance", lambda gpu: {})

    def run(workers: Workers, *overrides: str, **changes: Any) -> Sweep:
        config = configured("variant=all", *common, *overrides)
        wanted = [stack for stack in config.stacks if stack.name in ("baseline", "vec128", "smem_cache")]
        cuda = {"device": DeviceChoice("cuda", "A GPU"), "ptx": None, "stacks": tuple(wanted)}
        monkeypatch.setattr(budget, "clock", lambda: workers.now)
        workers.setup = Setup(replace(config, **(cuda | changes)), Quiet())
        made = Sweep(workers.setup, workers, {})  # type: ignore[arg-type]
        made.run()
        return made

    return run


def test_what_was_validated_is_only_timed(sweep, monkeypatch):
    validated = sweep(Workers(), "timing=none").records
    workers = Workers()
    timed = sweep(workers, "timing=quick").records
    assert [job["proof"] for job in workers.sent] == [
        {"id": validated[index]["id"], "verdict": VERDICT, "blocks": 4} for index in range(3)
    ]
    assert len({row["id"] for row in (*validated.values(), *timed.values())}) == 6
    workers = Workers()
    workers.status = "MISMATCH"
    sweep(workers, "timing=quick", "validate.seeds=2")
    assert [job["proof"] for job in workers.sent] == [None] * 3, "more was asked of the validation"
    workers = Workers()
    sweep(workers, "timing=quick", "validate.seeds=2", "timing.rounds=9")
    assert [job["proof"] for job in workers.sent] == [None] * 3, "it failed"
    monkeypatch.setattr("experiments.run.describe.sources_sha", lambda *code: "of a validator with one trial more")
    workers = Workers()
    sweep(workers, "timing=quick", "timing.rounds=9")
    assert [job["proof"] for job in workers.sent] == [None] * 3, "another validator"


def test_a_gpu_run_says_before_it_starts_how_long_it_takes(sweep, monkeypatch):
    """By the estimate, then by what such rows took; and it measures two positions, where none are asked."""
    notes: list[str] = []
    monkeypatch.setattr(Quiet, "note", lambda show, text: notes.append(text))
    made = sweep(Workers(), "model.positions=512")
    assert made.config.timing.at(made.config.model) == (1, 200)
    sweep(Workers(), "model.positions=512", "resume=false")
    assert [note for note in notes if "about" in note] == [
        "3 stacks, at about 20 s each: 1 min",
        "3 stacks, at about 10 s each: 0.5 min",
    ]


@pytest.mark.parametrize(("verdict", "again"), [("STOPPED", 3), ("UNSTABLE", 0)])
def test_a_time_that_a_search_gave_up_is_taken_again_where_one_is_asked(sweep, verdict, again):
    first, second = Workers(), Workers()
    first.verdict = second.verdict = verdict
    sweep(first)
    sweep(second)
    assert len(second.sent) == again
    assert all(job["proof"] for job in second.sent)  # it was validated


@pytest.mark.parametrize(("beat", "again"), [(1e-6, 0), (1.0, 3)])
def test_a_search_takes_what_it_gave_up_from_records_where_it_is_too_slow_again(sweep, beat, again):
    first, second = Workers(), Workers()
    first.verdict = "STOPPED"
    other = sweep(first)
    other.records.clear()
    second.setup, other.pool = first.setup, second
    other.run(beat)
    assert len(second.sent) == again


@pytest.mark.parametrize(("status", "again"), [("OOM", 3), ("INTERRUPTED", 3), ("REFUSED", 0)])
def test_what_says_nothing_of_the_kernel_is_run_again(sweep, status, again):
    first, second = Workers(), Workers()
    first.status = status
    sweep(first, "timing=none")
    sweep(second, "timing=none")
    assert len(second.sent) == again


def test_a_search_gives_its_workers_other_stacks_and_the_time_to_beat(sweep):
    workers = Workers()
    made = sweep(workers, stacks=())
    (one,) = (stack for stack in sweep(Workers()).config.stacks if stack.name == "vec128")
    other = made.of([one])
    workers.setup = other.setup
    other.config.results.unlink()
    other.run(beat=1e-3)
    assert [(job["stack"].name, job["beat"]) for job in workers.sent] == [("vec128", 1e-3)]
    assert (list(other.records), made.records) == ([0], {})


def test_a_row_that_would_exceed_the_budget_is_not_begun(sweep):
    """25 s hold two rows of ten; the first is guessed to take 5."""
    workers = Workers()
    with pytest.raises(Unfinished, match=r"1 of 3 stacks are left, at about 10 s each: vec128; .*resume=true"):
        sweep(workers, "timing=none", budget=Budget(25.0, 5.0))
    assert len(workers.sent) == 2
    workers = Workers()
    with pytest.raises(Unfinished, match="1 of 3"):
        sweep(workers, "timing=none", budget=Budget(9.0, 5.0))
    assert workers.sent == [], "the records say what a row takes"
    assert len(sweep(Workers(), "timing=none", budget=Budget(11.0, 5.0)).records) == 3


def test_a_sweep_has_a_worker_for_each_core_that_it_may_use(configured, one_core, monkeypatch):
    config = configured("model=tiny")
    alone = [{"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}]
    assert places(config, config.model) == alone
    large = configured("model=qwen3_0_6b").model
    assert places(config, large) == alone
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 8, 9})
    assert places(config, config.model) == 4 * alone
    assert places(config, large) == [alone[0] | {"OMP_NUM_THREADS": "4"}]


def test_a_gpu_has_a_second_worker_where_cores_are_left_to_compile(configured, cupy, monkeypatch):
    config = replace(configured("model=tiny"), device=DeviceChoice("cuda", "A GPU"), ptx=None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    for cores, workers in ((1, 1), (3, 1), (4, 2), (64, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: set(range(cores)))
        assert places(config, config.model) == workers * [{"CUDA_VISIBLE_DEVICES": "3"}]

"""experiment=tune where a candidate or the budget fails, without a kernel that runs."""

from contextlib import nullcontext
from pathlib import Path
from shlex import split

import pytest

from common.errors import CompileError, LabError, Unfinished
from experiments.experiment import Experiment
from experiments.suite import tune
from experiments.tables.progress import Progress
from experiments.tuning.search import Outcome, Search
from experiments.tuning.space import Candidate

pytestmark = pytest.mark.covers


@pytest.fixture
def experiment(configured, tmp_path: Path, cpu_cache):
    """experiment(*overrides): of a small space."""

    def experiment_(*overrides: str) -> Experiment:
        where = [f"results={tmp_path}/r.jsonl", f"cache={cpu_cache}", "model=tiny"]
        config = configured("experiment=tune", "options.variants=[redundant_rmsnorm]", *where, *overrides)
        return Experiment(config, Progress((tmp_path / "progress").open("w")))

    return experiment_


@pytest.fixture
def on_gpu(monkeypatch) -> None:
    """As on a GPU: a search may begin, and measures nothing by itself."""
    monkeypatch.setattr(Experiment, "need_gpu", lambda self: None)
    monkeypatch.setattr(tune, "measuring", lambda *given: nullcontext())


def record(status: str = "PASSED", verdict: str | None = None) -> dict:
    timed = {"seconds": {"median": 2e-3, "low": 1e-3, "high": 3e-3}, "verdict": verdict}
    return {"id": "abc", "status": status, "reason": "at down", "latencies": [timed] if status == "PASSED" else []}


def test_what_a_record_says_of_a_candidate():
    assert tune.outcome_of(record()) == Outcome(2e-3, 1e-3, 3e-3)
    assert tune.outcome_of(record(verdict="STOPPED")).state == "stopped"
    assert tune.outcome_of(record(verdict="UNSTABLE")).state == "unstable"
    wrong, impossible = tune.outcome_of(record("MISMATCH")), tune.outcome_of(record(verdict="IMPLAUSIBLE"))
    assert (wrong.seconds, wrong.state, wrong.reason) == (None, "MISMATCH", "at down")
    assert (impossible.seconds, impossible.state) == (None, "IMPLAUSIBLE")


def test_a_stack_without_knobs_leaves_nothing_to_search(experiment):
    assert tune.space_of(experiment("options.stack=vec128", "options.variants=[]")).parameters
    with pytest.raises(LabError, match=r"both options.stack and options.variants are given"):
        tune.space_of(experiment("options.stack=vec128"))
    with pytest.raises(LabError, match=r"has nothing to search; give options.variants"):
        tune.space_of(experiment("options.stack=redundant_rmsnorm", "options.variants=[]"))


def test_a_named_stack_is_tried_as_it_is_named(experiment):
    space = tune.space_of(experiment("options.stack=persistent", "options.variants=[]"))
    search = Search(space, 1, tune.starts(space))
    usual, named = (next(search.candidates(9)).values for _ in range(2))
    assert usual["l1"] == "default"
    assert named == usual | {"l1": "no_allocate"}, "as conf/variant/persistent.yaml says"


def test_a_candidate_without_a_time_is_left_out_with_the_reason(experiment):
    search, candidate = experiment(), Candidate(("redundant_rmsnorm",), ())

    def fails(stack) -> Outcome:
        raise CompileError("no such type", "see the log", "log")

    assert tune.trial(search, candidate, fails) == Outcome(None, state="not tried")
    wrong = Outcome(None, state="MISMATCH", reason="at down")
    assert tune.trial(search, candidate, lambda stack: wrong) == wrong
    assert "no such type" in search.left_out[0]
    assert search.left_out[1].endswith("redundant_rmsnorm, MISMATCH: at down")


def test_the_words_of_a_candidate_choose_it(experiment, configured):
    tried = experiment("options.variants=[redundant_rmsnorm,warp_split]", "threads=128", "ratio=1:3")
    again = configured(*split(tune.overrides(tried, Candidate(("redundant_rmsnorm", "warp_split"), ()))))
    (stack,) = again.stacks
    assert (stack.variants, again.threads) == (("redundant_rmsnorm", "warp_split"), 128)
    assert stack.knobs["warp_split"] == {"producers": 1, "consumers": 3}
    assert tune.overrides(tried, Candidate((), ())) == "'stack=[baseline]' threads=128"


def test_a_spent_budget_ends_the_search_with_what_it_has(experiment, on_gpu, monkeypatch):
    def spent(*given: object) -> Outcome:
        raise Unfinished("the rows from vec128 on are left", "the same command goes on there")

    monkeypatch.setattr(tune, "trial", spent)
    result = tune.ask(experiment())
    assert "The budget ended it: the rows from vec128 on are left." in result.notes
    assert not result.rows

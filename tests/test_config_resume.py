"""Configuration taken from the store of results: whether to resume, and the seed of the run to resume."""

import pytest
from whole_rows import RUN

from common.errors import Unfinished
from common.record.store import Store
from experiments.experiment import Experiment
from experiments.tables.progress import Quiet


def test_experiments_resume_by_default(configured, tmp_path):
    """Recorded stacks are not measured again; a plain run measures everything."""
    results = f"results={tmp_path}/r.jsonl"
    Store(tmp_path / "r.jsonl").append(RUN | {"seed": 123})
    assert not configured("variant=baseline", results).resume
    found = configured("experiment=sync_cost", results)
    assert (found.resume, found.seed) == (True, 123)
    assert not configured("experiment=sync_cost", "resume=false", results).resume
    assert not configured("experiment=validate", results).resume


def test_an_experiment_resumes_with_the_seed_of_its_own_rows(configured, tmp_path):
    """An experiment without runs, such as sass, would begin again with another seed."""
    row = {"kind": "row", "asked": {"task": "sass", "seed": 7}, "reason": "", "took": 1.0, "provenance": {}}
    for each in (row | {"asked": {"task": "sass", "seed": 6}}, row, RUN | {"seed": 123}):
        Store(tmp_path / "r.jsonl").append(each)
    seeds = {task: configured(f"experiment={task}", f"results={tmp_path}/r.jsonl").seed for task in ("sass", "quality")}
    assert seeds == {"sass": 7, "quality": 123}


def test_rows_of_another_model_say_nothing_of_the_seconds_of_a_row(configured, tmp_path):
    given = ["experiment=sass", "device=ptx", "budget_s=60", "row_s=1", f"results={tmp_path}/r.jsonl"]
    large, small = (Experiment(configured(*given, f"model={name}"), Quiet()) for name in ("qwen3_4b", "tiny"))
    asked = {"task": "sass", "seed": 1, "device": large.config.device, "model": large.model}
    large.store.append({"kind": "row", "asked": asked, "reason": "", "took": 1000.0, "provenance": {}})
    assert small.attempt("a row", lambda: 5) == 5
    with pytest.raises(Unfinished, match="at about 1000 s each"):
        large.attempt("a row", lambda: 5)


def test_a_part_of_a_row_is_noted_and_not_resumed_from(configured, tmp_path, caplog):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a", "schema": 3, "time": "2026", "kind": "run"}\n')
    assert configured("variant=baseline", "resume=true", f"results={path}").resume
    assert caplog.messages == [f"note: {path}: damaged row on line 1"]

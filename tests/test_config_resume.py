"""Configuration taken from the store of results: whether to resume, and the seed of the run to resume."""

from whole_rows import RUN

from common.record.store import Store


def test_experiments_resume_by_default(configured, tmp_path):
    """Recorded stacks are not measured again; a plain run measures everything."""
    results = f"results={tmp_path}/r.jsonl"
    Store(tmp_path / "r.jsonl").append(RUN | {"seed": 123})
    assert not configured("variant=baseline", results).resume
    found = configured("experiment=sync_cost", results)
    assert (found.resume, found.seed) == (True, 123)
    assert not configured("experiment=sync_cost", "resume=false", results).resume
    assert not configured("experiment=validate", results).resume


def test_a_part_of_a_row_is_noted_and_not_resumed_from(configured, tmp_path, caplog):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a", "schema": 3, "time": "2026", "kind": "run"}\n')
    assert configured("variant=baseline", "resume=true", f"results={path}").resume
    assert caplog.messages == [f"note: {path}: damaged row on line 1"]

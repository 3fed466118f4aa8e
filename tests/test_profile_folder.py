"""Output folder of a profile that cannot be written: refused in one line, before any work if possible."""

import pytest
from permissions import without_root_rights

from common.config.run_config import RunConfig
from profiles import __main__ as profiles
from profiles.target import Profile

ON_PTX = ("device=ptx", "model=tiny", "variant=baseline", "seed=7")
REMEDY = "; choose a writable folder: results=FOLDER/records.jsonl, without keep=true\n"


@pytest.fixture
def started(monkeypatch) -> list[str]:
    """List of what was compiled or run; it must stay empty."""
    begun: list[str] = []
    monkeypatch.setattr("experiments.run.setup.Setup.check", lambda *_: begun.append("check"))
    return begun


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_may_not_be_written_is_refused_before_any_work(tmp_path, monkeypatch, started, exists, capfd):
    """A read-only checkout, with and without the folder of a kept profile."""
    kept = tmp_path / "profiles"
    if exists:
        (kept / "timeline-baseline-tiny-ptx-1").mkdir(parents=True)
    monkeypatch.setattr(profiles, "ROOT", tmp_path)
    for path in (*kept.rglob("*"), kept, tmp_path):
        if path.exists():
            path.chmod(0o555)
    try:
        with without_root_rights():
            code = profiles.main([*ON_PTX, "tool=timeline", "keep=true"])
    finally:
        for path in (tmp_path, kept, *kept.rglob("*")):
            if path.exists():
                path.chmod(0o755)
    err = capfd.readouterr().err
    assert (code, started) == (2, [])
    assert err == f"error: {kept}/timeline-baseline-tiny-ptx-1 cannot be written: Permission denied{REMEDY}"


def test_a_file_at_the_path_of_the_folder_is_reported_in_one_line(tmp_path, started, capfd):
    (tmp_path / "profiles").write_text("a file")
    assert profiles.main([*ON_PTX, "tool=timeline", f"results={tmp_path}/records.jsonl"]) == 2
    err = capfd.readouterr().err
    assert started == []
    assert err.startswith(f"error: {tmp_path}/profiles"), err
    assert err.count("\n") == 1, err


def test_a_profile_is_written_next_to_the_records(configured, tmp_path):
    config: RunConfig = configured("variant=baseline", "model=tiny", f"results={tmp_path}/mine/records.jsonl")
    wanted = Profile(config, "timeline", 1, 1, False, None, None)
    assert profiles.make_folder(wanted) == tmp_path / "mine" / "profiles" / "timeline-baseline-tiny-ptx-1"
    assert list((tmp_path / "mine").rglob("*")) == [
        tmp_path / "mine" / "profiles",
        tmp_path / "mine" / "profiles" / "timeline-baseline-tiny-ptx-1",
    ]


def test_two_values_of_a_knob_have_two_folders(configured, tmp_path):
    where = ("variant=warp_split", "model=tiny", f"results={tmp_path}/records.jsonl")
    configs = [configured(*where, f"ratio={ratio}") for ratio in ("2:6", "4:4")]
    names = [profiles.make_folder(Profile(one, "timeline", 1, 1, False, None, None)).name for one in configs]
    assert names == ["timeline-warp_split-tiny-ptx-1", "timeline-warp_split-ratio=4:4-tiny-ptx-1"]

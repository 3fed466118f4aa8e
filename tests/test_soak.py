"""A short form of `make soak`: no false alarms, and malformed inputs refused in one line."""

import pytest

from experiments.soak.__main__ import main, outcome
from experiments.soak.alarms import false_alarms
from experiments.soak.kills import Killed
from experiments.soak.malformed import faults


@pytest.mark.host
def test_sound_variants_raise_no_alarm(tmp_path, host_cache, seed):
    (tmp_path / "kernels").symlink_to(host_cache)
    assert false_alarms(20, tmp_path, seed) == []


def test_malformed_inputs_are_refused(tmp_path, seed):
    assert faults(40, tmp_path, seed) == []


def test_whatever_went_wrong_is_counted_and_told():
    killed = Killed(parents=3, children=4, sweeps=2, lost=1, different=["vec128"])
    found = outcome(killed, 500, ["baseline: MISMATCH"], 240, [])
    assert found.table["went wrong"].tolist() == [1, 0, 0, 1, 1, 0]
    assert found.table["tried"].tolist()[0] == "7 kills"
    assert found.notes[1:] == ["went wrong: vec128", "went wrong: baseline: MISMATCH"]


@pytest.mark.parametrize("argv", ["kills=many", "kills=0", "blows=3", "results=/dev/null/r.jsonl", "seed=-1"])
def test_a_mistake_is_one_line(argv, capsys):
    assert main([argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")

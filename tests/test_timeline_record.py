"""A timeline of a GPU is a record that a journal can cite; of ordinals there is none. On the stand-in, and on ptx."""

from contextlib import nullcontext

import pytest
from standin import installed

from common.model.stages import STAGES
from common.record.record import TimelineRecord
from common.record.store import Store
from experiments.show import __main__ as show
from profiles.__main__ import main

pytestmark = pytest.mark.cpu


@pytest.mark.parametrize("device", ["cuda", "ptx"])
def test_only_a_timeline_in_ns_is_recorded(device, cpu_cache, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    results = tmp_path / "r.jsonl"
    words = ["tool=timeline", "variant=baseline", "model=tiny", "validate=quick", "blocks=3", "position=5", "seed=1"]
    with installed() if device == "cuda" else nullcontext():
        assert main([*words, f"device={device}", f"cache={cpu_cache}", f"results={results}"]) == 0
    out, kept = capfd.readouterr().out, Store(results).read(TimelineRecord)
    assert len(kept) == (device == "cuda")
    for record in kept:
        assert f"Its record is {record.id}." in out
        assert (record.variant, record.stack, record.position, record.blocks) == ("baseline", (), 5, 3)
        assert record.device["gpu"].startswith("Stand-in")
        assert [stage["stage"] for stage in record.stages] == list(STAGES)
        assert record.layer_ns > 0
        assert show.main([record.id, f"results={results}"]) == 0
        shown = capfd.readouterr().out
        assert shown.startswith(f"baseline  (timeline {record.id}, ")
        assert shown.partition("\nstages\n")[2].split()[:3] == ["stage", "work_ns", "wait_ns"]

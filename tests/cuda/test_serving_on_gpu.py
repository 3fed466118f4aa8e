"""A server's engine on a GPU: the stages of a step with times."""

import pytest

from common.config.cli import composed
from common.config.resolve import resolve
from experiments.serving.decoder import Decoder
from experiments.serving.schema import TraceBody

pytestmark = pytest.mark.cuda


def test_a_server_times_the_stages_of_a_step(grid, cpu_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    keys = ["model=tiny", "variant=baseline", "device=cuda", f"blocks={grid or 8}", "seed=1"]
    config = resolve(composed("config", [*keys, f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl"]))
    decoder = Decoder(config)
    with decoder.engine:
        found = decoder.trace(TraceBody(model="tiny", position=3), "baseline")
    assert (found["unit"], found["blocks"]) == ("ns", grid or 8)
    assert {stage["stage"] for stage in found["stages"]} >= {"embed", "qkv", "attention", "argmax"}
    assert all(time >= 0 for stage in found["stages"] for time in (*stage["work"], *stage["wait"]))

"""The engine of generation on a GPU: the same ids as on the PTX device, also sampled and queued."""

import json
import random

import pytest

from common.config.resolve import model_named
from experiments import Lab
from experiments.generate import main
from experiments.generation.engine import Engine
from experiments.generation.request import Request, Sampling

TINY = model_named("tiny")
pytestmark = [pytest.mark.cuda, pytest.mark.covers]


def test_ids_of_a_seed_are_those_of_the_ptx_device(grid, cpu_cache, tmp_path, monkeypatch, seed):
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    keys = {"model": "tiny", "variant": "baseline", "seed": seed, "blocks": grid or 8, "cache": str(cpu_cache)}
    prompt = random.Random(seed).choices(range(503), k=6)

    def answers(device):
        with (
            Lab(device=device, results=str(tmp_path / "r.jsonl"), **keys) as lab,
            Engine(lab, lab.config.stacks[0]) as engine,
        ):
            found = []
            for variant, sampling in (("baseline", Sampling()), ("graph", Sampling(0.9, 40, 0.95, 1.2, seed))):
                engine.use(variant)
                pieces = engine.stream(Request((*prompt, *found), 8, sampling))
                found += [token for piece in pieces for token in piece.ids]
            assert engine.stats().kept_tokens == len(prompt) + 7
            return found

    assert answers("cuda") == answers("ptx")


def test_generate_says_how_near_the_ceiling_it_is(grid, cpu_cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAB_CACHE", str(cpu_cache))
    argv = ["model=tiny", "variant=baseline", "device=cuda", f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl"]
    assert main([*argv, f"blocks={grid or 8}", "prompt_ids=[1,2,3]", "max_tokens=4", "json=true"]) == 0
    found = json.loads(capsys.readouterr().out)
    seen = sum(TINY.bytes_per_token(position) for position in (3, 4, 5)) / 3  # the steps after the first token
    assert found["gb_per_s"] == pytest.approx(seen * found["tokens_per_s"] / 1e9)
    assert 0 < found["of_ceiling"] < 1

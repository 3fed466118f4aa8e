"""The engine of generation on a GPU: the same ids as on the PTX device, also sampled and queued."""

import random

import pytest

from experiments import Lab
from experiments.generation.engine import Engine
from experiments.generation.request import Request, Sampling

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

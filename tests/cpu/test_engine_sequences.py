"""Sequences of requests in one engine: whatever came before, an answer is that of a fresh engine."""

import random
from dataclasses import replace
from itertools import takewhile
from types import SimpleNamespace

import pytest
from legal_entries import check_entries
from sampled import sampled

from experiments.generation import engine as module
from experiments.generation.engine import Engine
from experiments.generation.request import Request, Sampling
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

pytestmark = pytest.mark.cpu
VOCAB = 8  # so few ids follow one another so often that drafts are right
LEAST, MOST = 8, 100  # requests of a sequence: until all has happened that may
OTHER = {False: "by_value", True: "multi_step"}  # by drafts, beside the baseline: more scratch, more steps a launch
FEW = ("variant=baseline", "model=tiny", f"model.vocab={VOCAB}", "model.positions=20", "threads=64", "blocks=2")


@pytest.fixture
def setup(configured, cpu_cache, seed):
    """setup(*overrides): of a lab with few ids and positions."""
    return lambda *more: Setup(configured(*FEW, f"seed={seed}", f"cache={cpu_cache}", *more), Quiet())


def drafting(setup, name, tokens):
    """Name and knobs of a stack that decodes so many tokens a step; None: as it is."""
    return ([*setup.choose(name, {}).variants, "verify"], {"tokens": tokens}) if tokens else (name, {})


def opened(setup, name, tokens=None):
    return Engine(setup, setup.choose(*drafting(setup, name, tokens)))


def fresh(engine, name, request):
    """All ids of an answer, by a new engine without drafts that has the entries of the prompt in `engine`.

    Two legal roundings of an entry may make two answers, so these are judged by themselves.
    """
    with opened(engine.setup, name) as new:
        new.session.cache.store(0, engine.session.cache.entries(0, len(request.ids) - 1))
        new._ids = list(request.ids)
        ids = [token for piece in new.stream(replace(request, stop_ids=frozenset())) for token in piece.ids]
        assert new.stats().kept_tokens == len(request.ids) - 1
    return ids


class Sequence:
    """Drawn requests to one engine, each checked; `seen` is what has happened."""

    def __init__(self, engine, names, tokens, draw):
        self.engine, self.names, self.tokens, self.draw = engine, names, tokens, draw
        self.name, self.held, self.seen = names[0], [], set()

    def request(self):
        """One whose prompt begins with some, all or none of what the KV cache holds, and which may fill it."""
        draw, room = self.draw, self.engine.positions
        again = self.held[: draw.choice((0, draw.randrange(VOCAB), len(self.held)))]
        new = draw.choices(range(VOCAB), k=draw.randint(0 if again else 1, 4))
        prompt = (*again, *new)[: draw.randint(1, room)]
        most = room - len(prompt) + 1
        sampling = draw.choice(
            (
                Sampling(),
                Sampling(0.0, repetition_penalty=1.3),
                Sampling(draw.choice((0.1, 0.8)), seed=draw.randrange(9)),
                Sampling(0.5, 3, 0.9, 0.7, draw.randrange(9)),
            )
        )
        stops = frozenset(draw.sample(range(VOCAB), k=draw.choice((0, 0, 1))))
        return Request(prompt, draw.choice((most, draw.randint(1, most))), sampling, stops)

    def step(self):
        """One request, answered to its end, cancelled or left, and perhaps another stack before it."""
        if self.draw.random() < 0.25:
            self.name = self.draw.choice(self.names)
            self.engine.use(*drafting(self.engine.setup, self.name, self.tokens))
            self.seen.add(f"use {self.name}")
        request, most, leaves = self.request(), self.draw.choice((1, 2, 1000, 1000)), self.draw.random() < 0.3
        same = takewhile(bool, (one == other for one, other in zip(self.held[:-1], request.ids[:-1], strict=False)))
        kept, pieces = len([*same]), []
        for piece in self.engine.stream(request, lambda: len(pieces) == most):
            assert piece.finish in ("stop", "length", "cancelled" if len(pieces) == most else None)
            pieces.append(piece)
            if leaves and len(pieces) == most:
                break
        told = [token for piece in pieces for token in piece.ids]
        self.held = [*request.ids, *told]
        self.check(request, told, pieces[-1].finish, kept)

    def check(self, request, told, finish, kept):
        engine, whole = self.engine, fresh(self.engine, self.name, request)
        end = next((at for at, token in enumerate(whole, 1) if token in request.stop_ids), len(whole))
        if finish in ("stop", "length"):
            assert (told, finish) == (whole[:end], "stop" if whole[end - 1] in request.stop_ids else "length")
        else:
            assert told == whole[: len(told)]
            assert 0 < len(told) < end
        check_entries(
            engine.model,
            engine.setup.packed.flat,
            engine.session.cache.entries(0, len(self.held) - 1),
            self.held,
            self.draw.sample(range(len(self.held) - 1), k=min(2, len(self.held) - 1)),
        )
        if finish:
            stats = engine.stats()
            assert (stats.prompt_tokens, stats.kept_tokens, stats.tokens) == (len(request.ids), kept, len(told))
            if stats.steps < stats.tokens:
                self.seen.add("drafts drawn" if request.sampling.temperature else "drafts")
        self.seen.add(finish or "left")
        self.seen |= {"kept"} if kept else set()
        self.seen |= {"full"} if len(self.held) == engine.positions + 1 else set()


@pytest.mark.parametrize("tokens", sampled([None, 2, 3, 5], 2))  # in a step: at least one case has drafts
def test_an_answer_is_that_of_a_fresh_engine_whatever_came_before(setup, seed, tokens, monkeypatch):
    """By a clock that makes bursts of any length."""
    draw, now = random.Random(seed), [0.0]

    def clock():
        now[0] += draw.choice((0.2, 1.0, 4.0)) * module.BURST
        return now[0]

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=clock))
    names = ("baseline", OTHER[bool(tokens)])
    wanted = {"length", "stop", "cancelled", "left", "kept", "full", *(f"use {name}" for name in names)}
    wanted |= {"drafts", "drafts drawn"} if tokens else set()
    with opened(setup(), names[0], tokens) as engine:
        sequence = Sequence(engine, names, tokens, draw)
        for number in range(MOST):
            if number < LEAST or sequence.seen < wanted:
                sequence.step()
    assert sequence.seen == wanted


def test_no_access_of_a_sampled_answer_with_drafts_races(setup, seed):
    """No trial of the validator runs the sampler, here of several warps."""
    draw, request = random.Random(seed), None
    small = ["model.vocab=1100", *(f"model.{name}=32" for name in ("hidden", "intermediate", "head_dim"))]
    small += [f"model.{name}=1" for name in ("layers", "heads", "kv_heads")]
    with opened(setup(*small), "baseline", 3) as plain:
        while not request or plain.stats().steps == request.max_tokens:  # until a draft is right
            prompt = draw.choices(range(plain.model.vocab), k=3) * 3
            request = Request(tuple(prompt), 8, Sampling(0.05, 5, 0.95, 0.7, draw.randrange(99)))
            want = [token for piece in plain.stream(request) for token in piece.ids]
        steps = plain.stats().steps
        assert plain._sampler._source.threads > 32
    with opened(setup(*small, "device.races=true"), "baseline", 3) as racing:
        assert [token for piece in racing.stream(request) for token in piece.ids] == want
        assert racing.stats().steps == steps < request.max_tokens

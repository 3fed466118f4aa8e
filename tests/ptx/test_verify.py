"""Steps of several tokens: the ids of plain decoding with any drafts, and drafts by prompt lookup."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest
import torch
from composed import Composed
from sampled import sampled

from common.devices.protocol import Session
from common.model.format import OF_CACHE
from common.validate.drafts import NO_DRAFT, accepted, looked_up

pytestmark = pytest.mark.cpu
RING = ("joint_heads", "by_value", "bulk_ring", "columns")
# Stacks that `verify` is put on.
BELOW = ((("redundant_rmsnorm", "vec128"), {}), (RING, {}), ((*RING, "stream_kv"), {"chunk": 16}))
PROMPT, TOKENS, THREADS = 7, 120, 64


@dataclass(frozen=True)
class Decoding:
    """A session, and the ids of plain decoding by its parent, from position 0 on."""

    session: Session
    ids: list[int]

    def word(self, name: str) -> int:
        return int(self.session.state()[self.session.layout.state[name].offset])

    def known(self) -> list[int]:
        """The ids up to the last choice."""
        at = self.session.layout.state["ids"].offset
        return self.session.state()[at : at + 1 + self.word("position")].tolist()


@pytest.fixture(params=sampled(product(OF_CACHE, BELOW), 2))
def decoding(request, tiny, open_session, synthetic, seed):
    """decoding(tokens, more=()): a step of so many tokens. Of 24 ids some follow one another again, and some do not."""
    model, random = replace(tiny, name="few ids", layers=2, vocab=24, positions=PROMPT + TOKENS + 16), Random(seed)
    form, (below, knobs) = request.param
    model = model.in_formats(kv=form)
    weights, prompt = synthetic(model, seed), [random.randrange(model.vocab) for _ in range(PROMPT)]

    def start(source) -> Session:
        session = open_session(source, weights, blocks=3, schedule=random.randrange(100))
        session.reset(prompt, 0, forced=PROMPT)
        return session

    plain = Decoding(start(Composed(below, knobs).source(model, THREADS)), [])
    plain.session.run(PROMPT + TOKENS - 1)
    ids = plain.known()

    def make(tokens: int, *more: str) -> Decoding:
        return Decoding(
            start(Composed((*below, *more, "verify"), knobs | {"tokens": tokens}).source(model, THREADS)), ids
        )

    return make


def steps(decoding: Decoding) -> Iterator[int]:
    """Launches of one step each, up to TOKENS chosen ids; yields the drafts that each has accepted."""
    while decoding.word("position") < PROMPT + TOKENS - 1:
        decoding.session.run(1)
        yield decoding.word("accepted")


@pytest.mark.parametrize("tokens", sampled(range(2, 9), 1))
def test_ids_are_those_of_plain_decoding(decoding, tokens):
    several = decoding(tokens)
    drafts = list(steps(several))
    assert several.known()[: PROMPT + TOKENS] == several.ids
    assert len(several.known()) == 1 + sum(drafts) + len(drafts)
    assert 0 < sum(drafts[PROMPT:]) < (tokens - 1) * len(drafts[PROMPT:])  # some right, some wrong


def test_steps_of_one_launch_draft_for_the_next(decoding):
    several = decoding(3, "multi_step")
    several.session.run(TOKENS // 3)
    known = several.known()
    assert len(known) > TOKENS // 3 + 3 * (PROMPT // 3)
    assert known == several.ids[: len(known)]


@pytest.mark.parametrize(("tokens", "right"), sampled(product([2, 5], ["all", "none", "some"]), 1))
def test_given_drafts(decoding, seed, tokens, right):
    """Right drafts are accepted, the first wrong one ends a step, and a rejected entry of the cache is never read."""
    random, several = Random(seed), decoding(tokens)
    session, layout = several.session, several.session.layout
    *heads, _, row = layout.cache.stored
    lost = torch.full((*heads, tokens, row), torch.nan, dtype=torch.bfloat16)  # below bf16 their scales are NaN
    while several.word("position") < PROMPT:
        session.run(1)
    while (at := several.word("position")) < PROMPT + TOKENS - 1 - tokens:
        good = {"all": tokens - 1, "none": 0, "some": random.randrange(tokens)}[right]
        drafts = several.ids[at + 1 : at + tokens]
        if good < len(drafts):
            drafts[good] = (drafts[good] + random.randrange(1, layout.model.vocab)) % layout.model.vocab
        session.cache.store(at, lost)  # what an earlier step stored for a draft that was wrong
        session.resume(layout.initial_state([*several.ids[: at + 1], *drafts], at, forced=PROMPT))
        session.run(1)
        assert several.word("accepted") == good
    assert several.known()[: PROMPT + TOKENS - tokens] == several.ids[: PROMPT + TOKENS - tokens]


def test_lookup_by_hand():
    assert looked_up([1, 2, 3, 9, 1, 2, 3], 3) == [9, 1, 2]  # three ids match
    assert looked_up([1, 2, 3, 8, 2, 3, 9, 1, 2, 3], 2) == [8, 2]  # three ids before two, though the two are nearer
    assert looked_up([5, 3, 6, 3, 7, 3], 2) == [7, 3]  # matches of one id each: the latest
    assert looked_up([4, 4], 3) == [4, 4, 4]  # into the drafts themselves
    assert looked_up([1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]
    assert looked_up([1, 2, 3], 2) == [NO_DRAFT, NO_DRAFT]
    assert looked_up([1], 0) == []


def test_acceptance_by_hand():
    ids = [7, 8, 9, 10, 11]
    assert accepted([8, 9, 10], ids, 0, 1) == 2  # the choice of the last token has no draft behind it
    assert accepted([8, 1, 10], ids, 0, 1) == 1
    assert accepted([1, 9, 10], ids, 0, 1) == 0
    assert accepted([1, 1, 1], ids, 0, 3) == 2  # with a prompt of three
    assert accepted([1, 1, 1, 1], ids, 0, 3) == 2
    assert accepted([5], ids, 3, 1) == 0

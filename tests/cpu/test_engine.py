"""The engine of generation on a CPU, against one session that decodes everything by itself."""

import pytest

from common.errors import LabError
from experiments.generation import engine as module
from experiments.generation.engine import Engine
from experiments.generation.request import Request, Sampling
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

pytestmark = pytest.mark.cpu


@pytest.fixture
def engine(configured, cpu_cache, seed):
    config = configured("variant=baseline", "model=tiny", f"seed={seed}", f"cache={cpu_cache}")
    setup = Setup(config, Quiet())
    with Engine(setup, config.stacks[0]) as opened:
        yield opened


def answer(engine, prompt, tokens, **more):
    pieces = list(engine.stream(Request(tuple(prompt), tokens, **more)))
    assert [piece.finish is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    return [token for piece in pieces for token in piece.ids], pieces[-1].finish


def test_an_answer_ends_where_another_one_or_the_engine_does(engine, alone):
    request = Request((3,), 12)
    older, never_begun = engine.stream(request), engine.stream(request)
    begun = list(next(older).ids)
    waiting = engine.stream(Request((4,), 12))  # begins with its first piece
    begun += next(older).ids
    assert begun == alone(engine, [3], len(begun))
    newer = [*next(waiting).ids]
    for _ in range(2):
        with pytest.raises(LabError, match="another answer has begun; "):
            list(older)
        older = engine.stream(request)
        next(older)
        waiting = engine.stream(Request((4,), 12))
        newer = [token for piece in waiting for token in piece.ids]
    assert newer == alone(engine, [4], 12)

    older = engine.stream(request)
    next(older)
    for _ in range(2):
        engine.close()
    for use in (older.__next__, never_begun.__next__, lambda: engine.stream(request), lambda: engine.use("vec128")):
        with pytest.raises(LabError, match="the engine is closed; "):
            use()


def test_an_answer_ends_at_its_stop_id_or_when_it_is_cancelled(engine, alone):
    want = answer(engine, [3], 12)[0]
    assert want == alone(engine, [3], 12)
    stop = want[5]
    first = want.index(stop) + 1
    assert answer(engine, [3], 12, stop_ids=frozenset({stop})) == (want[:first], "stop")
    told = 0
    for piece in engine.stream(Request((3,), 12), lambda: True):
        told += len(piece.ids)
    assert (piece.finish, told) == ("cancelled", 1)
    assert answer(engine, [3], 12) == (want, "length")  # and what it has cancelled does no harm


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((), 3), "the prompt or the answer has no token"),
        (Request((1,), 0), "the prompt or the answer has no token"),
        (Request((1, 503), 3), r"token id 503 is not in 0\.\.502"),
        (
            Request((1, 2, 3), 63),
            "a prompt of 3 and max_tokens=63 need 65 positions of 64; lower max_tokens to at most 62",
        ),
        (Request((1,) * 65, 1), "need 65 positions of 64; shorten the prompt, or give model.positions=65 if"),
        (Request((1,), 1, stop_strings=("a",)), "stop strings need a tokenizer"),
    ],
)
def test_wrong_requests_are_refused_before_anything_is_decoded(engine, request_, message):
    with pytest.raises(LabError, match=message):
        engine.stream(request_)
    with pytest.raises(LabError, match="nothing has been generated"):
        engine.stats()
    with pytest.raises(LabError, match="synthetic weights have no tokenizer"):
        engine.chat_ids([{"role": "user", "content": "hi"}], False)
    with pytest.raises(LabError, match="did you mean 'baseline'"):
        engine.use("basline")
    with pytest.raises(LabError, match="name one of them"):
        engine.use("all")
    with pytest.raises(LabError, match="'2:6' gives no knobs; "):
        engine.use("warp_split", "2:6")
    assert engine.name == "baseline"


def test_a_stack_that_keeps_no_logits_is_refused_for_sampling_by_name(engine, monkeypatch):
    run = type(engine.session).run

    def without_logits(self, steps=1, then=None):
        run(self, steps)
        self._buffers["scratch"].tensor.fill_(float("nan"))
        if then:
            then._run_launches([(0, 1)])

    monkeypatch.setattr(type(engine.session), "run", without_logits)
    assert len(answer(engine, [1, 2], 3)[0]) == 3
    with pytest.raises(LabError, match=r"baseline keeps no logits .*; give temperature=0 .*another variant"):
        answer(engine, [1, 2], 3, sampling=Sampling(0.8))


def test_sampled_answers_repeat_with_their_seed_whatever_the_bursts(engine, monkeypatch):
    def ids(seed):
        return answer(engine, [4, 5, 6], 12, sampling=Sampling(1.0, 50, 0.9, 1.1, seed))[0]

    want = ids(7)
    monkeypatch.setattr(module, "BURST", 1e-9)
    assert ids(7) == want
    monkeypatch.setattr(module, "BURST", 1e9)
    assert ids(7) == want
    assert ids(8) != want


def test_drafts_need_room_behind_the_answer(engine):
    with Engine(engine.setup, engine.setup.choose(["verify"], {"tokens": 4})) as drafting:
        assert drafting.positions == engine.positions - 3
        with pytest.raises(
            LabError, match=r"besides 3 for drafts; lower max_tokens to at most 60, or give model.positions=65"
        ):
            answer(drafting, [1, 2], drafting.positions)

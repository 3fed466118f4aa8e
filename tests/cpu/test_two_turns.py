"""Two turns of a chat over one KV cache: the same ids and answers as without the first turn in the cache."""

import random

import pytest
from legal_entries import check_entries
from sampled import sampled
from trained import SPECIAL, TEXT, save_checkpoint

from experiments.generation.engine import Engine
from experiments.generation.request import Request
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

pytestmark = pytest.mark.cpu
PARTS = (*TEXT.split(), "  ", "\n", "\n\n", "3.", "\u00e9", "\U0001f9ea", SPECIAL[1], "<think>", "'s")


@pytest.fixture
def engine(tmp_path, cpu_cache, configured, seed):
    save_checkpoint(tmp_path / "model", seed, positions=300)
    config = configured("variant=baseline", f"weights={tmp_path}/model", f"cache={cpu_cache}")
    with Engine(Setup(config, Quiet()), config.stacks[0]) as opened:
        yield opened


def said(rng: random.Random) -> str:
    return " ".join(rng.choices(PARTS, k=rng.randint(1, 5)))


class Talk:
    """A conversation with an engine. prompt: of the last answer, as transformers encodes the whole conversation."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine, self.rng, self.thinking = engine, rng, rng.random() < 0.5
        self.messages = [{"role": "system", "content": said(rng)}] if rng.random() < 0.5 else []
        self.prompt: list[int] = []

    def ask(self) -> list[int]:
        """The ids of the answer to another message."""
        self.messages.append({"role": "user", "content": said(self.rng)})
        wanted = {"tokenize": True, "add_generation_prompt": True, "enable_thinking": self.thinking}
        self.prompt = self.engine.tokenizer.apply_chat_template(self.messages, return_dict=True, **wanted)["input_ids"]
        ids = self.engine.chat_ids(self.messages, self.thinking)
        pieces = list(self.engine.stream(Request(ids, 8)))
        self.messages.append({"role": "assistant", "content": "".join(piece.text for piece in pieces)})
        return [token for piece in pieces for token in piece.ids]


def test_the_ids_of_200_conversations_are_those_of_transformers(engine, seed, monkeypatch):
    """The first answer is of any ids: a checkpoint may say what its tokenizer would split in another way.

    Keys, values and answers are no part of this, and are made up.
    """
    rng, split_otherwise = random.Random(seed), 0
    vocab = range(len(SPECIAL), engine.model.vocab)
    monkeypatch.setattr(Engine, "_decode", lambda self, steps, sampling: rng.choices(vocab, k=steps))
    monkeypatch.setattr(
        "experiments.generation.engine.prefill",
        lambda model, layout, weights, ids, kept: kept.new_zeros(*kept.shape[:3], len(ids), kept.shape[4]),
    )
    at = engine.session.layout.state["ids"].offset
    for number in range(200):
        talk, known = Talk(engine, rng), list[int]()
        for turn in range(2):
            answer = talk.ask()
            prompt = talk.prompt
            assert engine.session.state()[at : at + len(prompt)].tolist() == prompt, (seed, number, turn)
            assert engine.stats().prompt_tokens == len(prompt)
            if turn:
                split_otherwise += prompt[: len(known)] != known
                first = [one == other for one, other in zip(known, prompt, strict=False)]
                assert engine.stats().kept_tokens == [*first[:-1], False].index(False), (seed, number)
            known = prompt + answer
    assert split_otherwise > 100  # out of 200: else the conversations would show nothing


def test_the_answers_are_those_of_a_kernel_that_begins_at_the_end_of_the_whole_conversation(engine, alone, seed):
    rng = random.Random(seed)
    for _ in range(3):
        talk = Talk(engine, rng)
        talk.ask()
        answer, prompt = talk.ask(), talk.prompt
        assert answer == alone(engine, prompt, len(answer)), seed
        check_entries(
            engine.model,
            engine.setup.packed.flat,
            engine.session.cache.entries(0, engine.positions),
            prompt,
            sampled(range(len(prompt) - 1), 4),
        )

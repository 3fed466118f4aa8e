"""Two turns of a chat over one KV cache: the ids of the prompt are those of transformers."""

import random

import pytest
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


def test_the_ids_of_200_conversations_are_those_of_transformers(engine, seed, monkeypatch):
    """The first answer is of any ids: a checkpoint may say what its tokenizer would split in another way.

    Keys, values and answers are no part of this, and are made up.
    """
    rng, split_otherwise = random.Random(seed), 0
    vocab = range(len(SPECIAL), engine.model.vocab)
    monkeypatch.setattr(Engine, "_decode", lambda self, steps, sampling: rng.choices(vocab, k=steps))
    monkeypatch.setattr(
        "experiments.generation.engine.prefill",
        lambda layout, weights, ids, kept: kept.new_zeros(*kept.shape[:3], len(ids), kept.shape[4]),
    )
    at = engine.session.layout.state["ids"].offset
    for number in range(200):
        messages = [{"role": "system", "content": said(rng)}] if rng.random() < 0.5 else []
        thinking, known = rng.random() < 0.5, list[int]()
        wanted = {"tokenize": True, "add_generation_prompt": True, "return_dict": True, "enable_thinking": thinking}
        for turn in range(2):
            messages.append({"role": "user", "content": said(rng)})
            prompt = engine.tokenizer.apply_chat_template(messages, **wanted)["input_ids"]
            pieces = list(engine.stream(Request(engine.chat_ids(messages, thinking), 8)))
            messages.append({"role": "assistant", "content": "".join(piece.text for piece in pieces)})
            assert engine.session.state()[at : at + len(prompt)].tolist() == prompt, (seed, number, turn)
            assert engine.stats().prompt_tokens == len(prompt)
            if turn:
                split_otherwise += prompt[: len(known)] != known
                first = [one == other for one, other in zip(known, prompt, strict=False)]
                assert engine.stats().kept_tokens == [*first[:-1], False].index(False), (seed, number)
            known = [*prompt, *(token for piece in pieces for token in piece.ids)]
    assert split_otherwise > 100  # out of 200: else the conversations would show nothing

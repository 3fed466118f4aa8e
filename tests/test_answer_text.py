"""Text of an answer as its tokens come, against the text of all tokens at once."""

import random

import pytest

from experiments.generation.text import Answer

tokenizers = pytest.importorskip("tokenizers")


class Bytes:
    """A tokenizer with bytes as ids; 256 is a special token. Its text is what Python decodes."""

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        assert skip_special_tokens
        assert not clean_up_tokenization_spaces
        return bytes(token for token in ids if token < 256).decode(errors="replace")


TEXT = "Zwölf Boxkämpfer: 日本語, é, ñ 🧪🤷🏽 end"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_no_character_is_split_and_none_is_lost(size):
    answer, ids = Answer(Bytes(), frozenset(), ()), [*TEXT.encode(), 256]
    pieces = [answer.add(ids[at : at + size])[1] for at in range(0, len(ids), size)]
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + answer.rest() == TEXT
    if size == 1:
        assert all(len(piece) <= 1 for piece in pieces)
        assert sum(map(bool, pieces)) == len(TEXT)  # each as soon as its last byte is there


def test_bytes_that_never_become_a_character_are_shown_at_the_end():
    answer = Answer(Bytes(), frozenset(), ())
    assert answer.add("a🧪".encode()[:3])[1] == "a"
    assert answer.rest() == "\ufffd"


def test_the_text_of_a_tokenizer_that_joins_words(seed):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    one = Tokenizer(models.BPE())
    one.pre_tokenizer, one.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    words = ["the lab decodes", "a step of the lab", "tokens of a step"]
    one.train_from_iterator(
        words * 3, trainers.BpeTrainer(vocab_size=60, special_tokens=["<end>"], show_progress=False)
    )

    class Wrapped:
        def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
            return one.decode(ids, skip_special_tokens=skip_special_tokens)

    ids = random.Random(seed).choices(range(one.get_vocab_size()), k=30)
    ids[9:9] = map(one.token_to_id, ["<end>", "▁", "▁"])  # a space at the start of what is decoded is left out
    answer = Answer(Wrapped(), frozenset(), ())
    pieces = [answer.add([token])[1] for token in ids]
    assert "".join(pieces) + answer.rest() == one.decode(ids)


@pytest.mark.parametrize(
    ("strings", "pieces", "shown", "rest"),
    [
        (["END"], ["a E", "ND b"], ["a ", ""], ""),  # across a border
        (["END"], ["a E", "N", " b"], ["a ", "", "EN b"], ""),  # it was none
        (["END"], ["a EN"], ["a "], "EN"),
        (["aab"], ["aa", "a", "b", "x"], ["", "a", "", ""], ""),  # it begins anew within what is held
        (["yy", "xyz"], ["axy", "yz"], ["a", "x"], ""),  # the first in the text, not in the list
        ([], ["a", "b"], ["a", "b"], ""),
    ],
)
def test_stop_strings(strings, pieces, shown, rest):
    answer = Answer(Bytes(), frozenset(), strings)
    assert [answer.add(piece.encode())[1] for piece in pieces] == shown
    assert answer.rest() == rest


def test_an_answer_ends_with_its_stop_id_or_before_its_stop_string():
    answer = Answer(Bytes(), frozenset({256}), ())
    assert answer.add([*b"ab", 256, *b"c"]) == ([97, 98, 256], "ab")
    assert answer.stopped
    answer = Answer(Bytes(), frozenset(), ("bc",))
    assert answer.add(b"ab") == ([97, 98], "a")
    assert answer.add(b"cd") == ([99], "")
    assert (answer.stopped, answer.rest()) == (True, "")
    answer = Answer(None, frozenset({2}), ("bc",))
    assert answer.add([1]) == ([1], "")
    assert (answer.stopped, answer.rest()) == (False, "")

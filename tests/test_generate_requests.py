"""Requests of `experiments.generate`, and a checkpoint's own facts of its tokens."""

import json

import pytest
from trained import save_tokenizer

from common.errors import LabError
from experiments import generate
from experiments.generation.request import Stats
from experiments.run.tokenizer import chat_text, encode, load_tokenizer, stop_ids


@pytest.mark.parametrize(
    ("files", "stops"),
    [
        ({}, set()),
        ({"config.json": {"eos_token_id": 5}}, {5}),
        ({"config.json": {"eos_token_id": None}}, set()),
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {"eos_token_id": [6, 7]}}, {6, 7}),
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {}}, {5}),
        ({"config.json": {"eos_token_id": 0}, "generation_config.json": {"eos_token_id": []}}, {0}),
        ({"config.json": {"eos_token_id": []}}, set()),
    ],
)
def test_stop_ids_of_a_checkpoint(tmp_path, files, stops):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert stop_ids(tmp_path) == stops


@pytest.mark.parametrize("eos", ["x", [[1]], 1.0, True, -1, {"a": 1}, [2, "x"], [None]])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_stop_id_is_an_id(tmp_path, name, eos):
    (tmp_path / name).write_text(json.dumps({"eos_token_id": eos}))
    with pytest.raises(LabError, match=rf"{name}: eos_token_id: .* is not an id; ") as found:
        stop_ids(tmp_path)
    assert "\n" not in str(found.value)


HELLO = [{"role": "user", "content": "hello"}]
FILES = {  # files of a tokenizer, with what they hold; None: there is no such file
    "tokenizer_config.json": (
        "[]",
        "5",
        "null",
        "{",
        *({key: 5} for key in ("tokenizer_class", "eos_token", "auto_map")),
    ),
    "tokenizer.json": ("[]", "{}", "null", "{", {"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}),
}


def test_what_is_no_tokenizer_is_refused_in_one_line(tmp_path):
    saved = save_tokenizer(tmp_path, 331)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "rms_norm_eps": 0, "eos_token_id": "x"}))
    for name, contents in FILES.items():
        whole = (tmp_path / name).read_text()
        for content in contents:
            text = content if isinstance(content, str) else json.dumps(json.loads(whole) | content)
            (tmp_path / name).write_text(text)
            with pytest.raises(LabError, match="no tokenizer loads from ") as found:
                load_tokenizer(tmp_path)
            assert "\n" not in str(found.value), text
        (tmp_path / name).write_text(whole)
    assert load_tokenizer(tmp_path).encode("One\n3.") == saved.encode("One\n3.")
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(tmp_path).encode("One\n3.") == saved.encode("One\n3.")


def test_what_is_no_text_and_no_message_is_refused_in_one_line(tmp_path):
    tokenizer = save_tokenizer(tmp_path, 331)
    for text in ("\ud800", 5, None, b"a"):
        with pytest.raises(LabError, match="the tokenizer refuses the text: "):
            encode(tokenizer, text)
    for template in ("{{ messages[0].content + 5 }}", "{{ 5 // 0 }}", "{% for", "{{ messages[7].content }}", 5):
        tokenizer.chat_template = template
        with pytest.raises(LabError, match="the chat template refuses the messages: ") as found:
            chat_text(tokenizer, HELLO, False)
        assert "\n" not in str(found.value)


def test_the_line_behind_an_answer_by_hand():
    """The first of 8 tokens after half a second, seven more in 1.75 s, by 4 steps."""
    line = "8 tokens, 4.0 tokens/s (250.00 ms a token), the first after 0.500 s; prompt of 3 tokens"
    assert generate.speed(Stats(3, 0, 8, 0.5, 2.25, 4.0, steps=8)) == line
    assert generate.speed(Stats(3, 0, 8, 0.5, 2.25, 4.0, steps=4)) == f"{line}; 2.00 tokens a step"


def test_a_missing_tokenizer_is_reported(tmp_path):
    with pytest.raises(LabError, match="has no tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(LabError, match="synthetic weights have no tokenizer"):
        load_tokenizer(None)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give a prompt"),
        (["experiment=counts"], "experiment= has no effect on a generation"),
        (["prompt_ids=[1]", "prompt=x"], "both prompt= and prompt_ids= are given; leave one of them out"),
        (["prompt="], "prompt= is empty; "),
        (['prompt=""'], "prompt= is empty; "),
        (['prompt=["a"]'], """prompt=["a"] is not a text; give prompt='"TEXT"'"""),
        (["prompt_ids=[1]", 'stop_strings=[""]'], 'stop_strings=[""] is not a list of names'),
        (["prompt_ids=[1]", "stop_strings=[1]"], """give stop_strings='["a","b"]'"""),
        (["prompt_ids=[]"], "empty"),
        (["prompt_ids=[-1]"], "prompt_ids=-1"),
        (["prompt_ids=[a]"], "prompt_ids=a"),
        (["prompt_ids=[1]", "max_tokens=0"], "max_tokens=0"),
        (["prompt_ids=[1]", "stop=maybe"], "stop=maybe"),
        (["prompt_ids=[1]", "temperature=true"], "temperature=True is not a number in 0.001..1000; "),
        (["prompt_ids=[1]", "top_k=2.5"], "top_k=2.5 is not a whole number in 0.."),
        (["prompt_ids=[1]", "max_token=3"], "did you mean 'max_tokens'?"),
        (["prompt_ids=[1]", "device=ptx", "threads=100"], "not a multiple of 32"),
    ],
)
def test_wrong_requests_are_refused(argv, message, capsys):
    assert generate.main(argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error

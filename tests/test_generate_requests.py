"""Requests of `experiments.generate`, and what a checkpoint says of its tokens."""

import json

import pytest

from common.errors import LabError
from experiments import generate
from experiments.generation.tokenizer import load_tokenizer, stop_ids


@pytest.mark.parametrize(
    ("files", "stops"),
    [
        ({}, set()),
        ({"config.json": {"eos_token_id": 5}}, {5}),
        ({"config.json": {"eos_token_id": None}}, set()),
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {"eos_token_id": [6, 7]}}, {6, 7}),
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {}}, {5}),
    ],
)
def test_stop_ids_of_a_checkpoint(tmp_path, files, stops):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert stop_ids(tmp_path) == stops


def test_a_tokenizer_is_loaded_or_reported_missing(tmp_path):
    with pytest.raises(LabError, match="has no tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(LabError, match="synthetic weights have no tokenizer"):
        load_tokenizer(None)
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "once": 1, "upon": 2}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).encode("upon once") == [2, 1]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give a prompt"),
        (["prompt_ids=[1]", "prompt=x"], "give a prompt"),
        (["prompt_ids=[]"], "empty"),
        (["prompt_ids=[-1]"], "prompt_ids=-1"),
        (["prompt_ids=[a]"], "prompt_ids=a"),
        (["prompt_ids=[1]", "max_tokens=0"], "max_tokens=0"),
        (["prompt_ids=[1]", "stop=maybe"], "stop=maybe"),
        (["prompt_ids=[1]", "max_token=3"], "did you mean 'max_tokens'?"),
        (["prompt_ids=[1]", "device=host", "threads=100"], "not a multiple of 32"),
    ],
)
def test_wrong_requests_are_refused(argv, message, capsys):
    assert generate.main(argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error

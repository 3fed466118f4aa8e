"""Requests and decode loop of `experiments.generate`, with a session that needs no kernel."""

import json

import pytest
import torch

from common.errors import LabError
from common.model.layout import Layout
from common.model.shapes import Model
from experiments import generate

TINY = Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)


class Counter:
    """A session whose model always chooses the last token + 1."""

    def __init__(self) -> None:
        self.layout = Layout(TINY)
        self.launches = 0

    def reset(self, ids, position, cache=None, forced=0) -> None:
        self.words = self.layout.initial_state(ids, position, forced)

    def run(self, steps: int = 1) -> None:
        self.launches += 1
        at = self.layout.state["ids"].offset
        for _ in range(steps):
            position = int(self.words[self.layout.state["position"].offset])
            if position + 1 >= int(self.words[self.layout.state["prompt_length"].offset]):
                self.words[at + position + 1] = self.words[at + position] + 1
            self.words[self.layout.state["position"].offset] = position + 1

    def state(self) -> torch.Tensor:
        return self.words.clone()


@pytest.mark.parametrize("step_by_step", [False, True])
@pytest.mark.parametrize(
    ("prompt", "max_tokens", "stops", "ids"),
    [
        ([7], 3, set(), [8, 9, 10]),
        ([50, 3, 20], 4, set(), [21, 22, 23, 24]),
        ([50, 3, 20], 4, {22, 24}, [21, 22]),
        ([50, 3, 20], 4, {3, 50, 20}, [21, 22, 23, 24]),  # a stop id in the prompt does not stop
        ([1] * 64, 1, set(), [2]),  # the last position of the cache
    ],
)
def test_decode_appends_ids_until_a_limit(prompt, max_tokens, stops, ids, step_by_step):
    session = Counter()
    assert generate.decode(session, prompt, max_tokens, frozenset(stops), step_by_step, lambda text: None) == ids
    assert (session.launches == 1) == (not step_by_step or len(prompt) + len(ids) == 2)


def test_a_prompt_must_leave_room():
    generate.check_room(3, 62, TINY)
    with pytest.raises(LabError, match=r"a prompt of 3 and max_tokens=63 need 65 positions of 64"):
        generate.check_room(3, 63, TINY)


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
    assert generate.stop_ids(tmp_path) == stops


def test_a_tokenizer_is_loaded_or_reported_missing(tmp_path):
    with pytest.raises(LabError, match="has no tokenizer"):
        generate.load_tokenizer(tmp_path)
    with pytest.raises(LabError, match="synthetic weights have no tokenizer"):
        generate.load_tokenizer(None)
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "once": 1, "upon": 2}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(tmp_path)
    assert generate.load_tokenizer(tmp_path).encode("upon once") == [2, 1]


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

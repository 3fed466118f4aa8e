"""Token ids that experiment=quality compares: a text by the weights' tokenizer, given ids, or random ones."""

from types import SimpleNamespace

import pytest
from trained import save_tokenizer

from common.config.section import Section
from common.errors import LabError
from experiments.suite.quality import given_ids

pytestmark = pytest.mark.covers


@pytest.fixture
def ids(tiny, tmp_path, seed):
    """ids(**options) of an experiment with weights from `folder`."""

    def ids_(folder=tmp_path, **options) -> tuple[int, ...]:
        options = Section({"text": None, "ids": None, "tokens": 5} | options, "options.")
        about = {"model": tiny, "packed": SimpleNamespace(folder=folder), "config": SimpleNamespace(seed=seed)}
        return given_ids(SimpleNamespace(options=options, **about))

    return ids_


def test_a_text_is_encoded_by_the_tokenizer_of_the_weights(ids, tmp_path):
    tokenizer = save_tokenizer(tmp_path, 300)
    found = ids(text="two one two")
    assert tokenizer.decode(found) == "two one two"
    with pytest.raises(LabError, match="1 tokens, the cache has 64 positions; give at least two that fit"):
        ids(text="o")


def test_a_text_without_a_tokenizer_is_refused(ids, tmp_path):
    for folder in (None, tmp_path):
        with pytest.raises(LabError, match=r"no tokenizer; give options.ids="):
            ids(folder, text="two one")


def test_ids_are_taken_as_given_if_the_model_has_them(ids, tiny):
    assert ids(ids=[3, 1, 3]) == (3, 1, 3)
    with pytest.raises(LabError, match=r"options.ids"):
        ids(ids=[3, tiny.vocab])
    with pytest.raises(LabError, match="65 tokens, the cache has 64 positions"):
        ids(ids=[1] * 65)
    with pytest.raises(LabError, match=r"both options\.text and options\.ids are given"):
        ids(ids=[3], text="two one")


def test_random_ids_are_those_of_the_seed_and_fit_into_the_cache(ids, tiny):
    assert ids() == ids()
    assert len(ids()) == 5
    assert len(ids(tokens=1000)) == tiny.positions

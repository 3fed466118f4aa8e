"""Validator of steps of several tokens, against a correct session and one fault of drafts at a time."""

import pytest
from fake_session import FakeSession
from test_check import MODEL, random_weights

from common.validate.check import validate
from common.validate.scenarios import scenarios

# fault, stage, note
FAULTS = [
    ("a prompt is not accepted", "position"),
    ("a draft is never accepted", "position"),
    ("a chosen draft is never accepted", "with drafts"),
    ("the last draft accepted anyhow", "position"),
    ("the choice of the first token", "lowest id"),
    ("accepted drafts not told", "accepted"),
    ("a draft too few", "ids"),
    ("a draft where nothing was found", "ids"),
    ("two ids looked for", "ids"),
    ("the earliest match", "ids"),
    ("drafts decoded as the first token", ""),
]


def verdict(tokens: int, seed: int, fault: str = ""):
    weights = random_weights(MODEL, seed)
    session = FakeSession(MODEL, weights, fault, tokens=tokens)
    return validate(session, weights, scenarios(MODEL, seed, weights, tokens=tokens), seed)


@pytest.mark.parametrize("tokens", [2, 5])
def test_a_correct_session_passes(tokens, seed):
    found = verdict(tokens, seed)
    assert found.passed, found
    assert found.steps % tokens == 0


@pytest.mark.parametrize(("fault", "note"), FAULTS)
def test_a_fault_of_drafts_is_found(fault, note, seed):
    found = verdict(3, seed, fault)
    assert found.status == "MISMATCH", f"{fault} passed, seed {seed}"
    assert note in found.mismatch.note, found

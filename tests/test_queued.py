"""Validation of queued steps, against a correct session and against the same session with one fault at a time."""

import pytest
import torch
from fake_session import FakeSession
from test_check import FAULTS, MODEL, random_weights

from common.model.layout import Layout
from common.validate.check import validate_queued
from common.validate.scenarios import Scenario, Start, drawn
from common.validate.tolerances import ReferenceSteps

STEPS = 4
# These need a prompt, large scores or equal logits, which a timed run does not have; or a look at the reset.
ELSEWHERE = (
    "prompt overwritten",
    "softmax without maximum",
    "tie to the higher id",
    "scratch kept",
    "cache kept",
    "history lost",
)


class Late(FakeSession):
    """Wrong at one position only, and so in one step of a queued run."""

    def __init__(self, *arguments, position: int) -> None:
        super().__init__(*arguments)
        self.late, self.only = self.fault, position

    def _step(self, queued: bool) -> None:
        self.fault = self.late if int(self._words("position")) == self.only else ""
        super()._step(queued)


def start_at(position: int, weights: torch.Tensor, seed: int) -> Scenario:
    return next(drawn([Start(position, STEPS)], Layout(MODEL), weights, torch.Generator().manual_seed(seed)))


def check(session: FakeSession, weights: torch.Tensor, seed: int, compared: set[int], position: int = 5):
    return validate_queued(
        session, start_at(position, weights, seed), compared, ReferenceSteps(session.layout, weights)
    )


def found_in_three(session: FakeSession, weights: torch.Tensor, seed: int, compared: set[int]):
    """The first mismatch of three starts: of one, a wrong token can be the right one by chance."""
    return next(filter(None, (check(session, weights, seed + at, compared)[1] for at in range(3))), None)


@pytest.mark.parametrize("position", [0, 5, MODEL.positions - STEPS])
def test_a_correct_session_passes_and_its_buffers_are_returned(position, seed):
    weights = random_weights(MODEL, seed)
    session = FakeSession(MODEL, weights)
    seen, found = check(session, weights, seed, set(range(STEPS)), position)
    assert found is None, found
    assert int(seen.words("position")) == position + STEPS
    assert torch.equal(seen.scratch.view(torch.int32), session.scratch().view(torch.int32))


@pytest.mark.parametrize(("fault", "at", "stage"), [each[:3] for each in FAULTS if each[0] not in ELSEWHERE])
def test_a_fault_is_found(fault, at, stage, seed):
    weights = random_weights(MODEL, seed)
    found = found_in_three(FakeSession(MODEL, weights, fault, at), weights, seed, {0, STEPS - 1})
    assert found, f"{fault} passed"
    # Cache and state after a step are compared first; an early step leaves only these.
    assert found.stage in (stage, "key", "value", "cache", "state", "argmax")


def test_a_fault_of_queued_steps_is_found(seed):
    weights = random_weights(MODEL, seed)
    assert found_in_three(FakeSession(MODEL, weights, "queued token stale"), weights, seed, set(range(STEPS)))


@pytest.mark.parametrize("fault", ["accepted drafts not told", "the choice of the first token"])
def test_steps_of_several_tokens(fault, seed):
    """A step that accepts a prompt of three ids, and chooses the token behind it."""
    weights, random = random_weights(MODEL, seed), torch.Generator().manual_seed(seed)
    starts = list(drawn([Start(5, given=3)] * 4, Layout(MODEL), weights, random))  # with one, two choices may be equal
    for name in ("", fault):
        session = FakeSession(MODEL, weights, name, tokens=3)
        reference = ReferenceSteps(session.layout, weights)
        found = [validate_queued(session, start, {0, 1}, reference)[1] for start in starts]
        assert any(found) == bool(name), found


def test_drafts_behind_queued_steps_are_those_of_all_ids(seed):
    weights, layout = random_weights(MODEL, seed), Layout(MODEL, tokens=3)
    reference = ReferenceSteps(layout, weights)
    for at in range(200):  # until the last choice has occurred before, so that there are drafts
        start = next(drawn([Start(9, 2)], layout, weights, torch.Generator().manual_seed(seed + at)))
        seen, found = validate_queued(FakeSession(MODEL, weights, tokens=3), start, {0}, reference)
        assert found is None, found
        if int(seen.words("ids")[int(seen.words("position")) + 2]) >= 0:
            break
    found = validate_queued(FakeSession(MODEL, weights, "a draft too few", tokens=3), start, {0}, reference)[1]
    assert (found.stage, found.note) == ("state", "ids")


@pytest.mark.parametrize("step", range(STEPS - 1))
def test_a_wrong_choice_of_one_step_is_found_by_its_logits(step, seed):
    """Later steps go on with it, rightly."""
    weights = random_weights(MODEL, seed)
    session = Late(MODEL, weights, "token off by one", position=5 + step)
    found = check(session, weights, seed, {step})[1]
    assert (found.stage, found.tolerance) == ("argmax", 0)


@pytest.mark.parametrize("step", range(STEPS))
def test_a_fault_of_one_step_is_found_where_that_step_is_compared(step, seed):
    weights = random_weights(MODEL, seed)
    session = Late(MODEL, weights, "truncated entry", 1, position=5 + step)
    assert check(session, weights, seed, {step})[1].stage == "key"

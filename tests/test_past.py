"""Long histories: they repeat at a distance that no wrong index has, and a digest stands for each."""

from dataclasses import replace

import pytest
import torch
from fake_session import FakeSession

from common.model.layout import Layout
from common.model.shapes import Model
from common.validate.reference import Past
from common.validate.scenarios import LARGE, PERIOD, Start, drawn

MODEL = Model("long", 8, 8, 2, 2, 1, 8, 11, 4200, 1e6, 1e-6, True)
LAYOUT = Layout(MODEL)


def draw(start: Start, seed: int):
    weights = torch.ones(LAYOUT.weights_size, dtype=torch.bfloat16)
    return next(drawn([start], LAYOUT, weights, torch.Generator().manual_seed(seed)))


def test_a_position_that_is_off_by_a_neighbor_or_a_power_of_two_has_other_entries(seed):
    history = draw(Start(4199), seed).history
    assert history.shape == (2, 2, 1, 4199, 8)
    for distance in (1, 2, 3, *(2**power for power in range(2, 13))):
        assert (history[..., distance:, :] != history[..., :-distance, :]).any(-1).all(), distance
    assert torch.equal(history[..., PERIOD:, :], history[..., :-PERIOD, :])


def test_the_largest_key_of_a_long_history_is_there_once(seed):
    ordinary, large = (draw(Start(4199, history=kind), seed).history for kind in ("ordinary", LARGE))
    changed = (ordinary != large).any(-1)
    assert (changed[:, 0].sum(-1) == 2).all(), "a pair of opposite keys in each layer and head"
    assert (changed[:, 1].sum(-1) == 1).all(), "one value"


@pytest.mark.parametrize("position", [5, 4199])
def test_a_digest_is_that_of_the_same_start_and_seed_and_no_other(position, seed):
    found = draw(Start(position), seed)
    assert found.past("cpu").digest == draw(Start(position), seed).past("cpu").digest
    others = [Start(position - 1), Start(position, history=LARGE), Start(position, history="equal scores")]
    different = [*(draw(start, seed) for start in others), draw(Start(position), seed + 1)]
    assert len({each.digest for each in (found, *different)}) == 5
    entry = found.history[..., :1, :]
    assert found.past("cpu").then(entry).digest != found.past("cpu").then(-entry).digest


def test_a_history_that_a_session_holds_is_read_where_it_is(seed):
    start = draw(Start(9), seed)
    session = FakeSession(MODEL, torch.zeros(LAYOUT.weights_size, dtype=torch.bfloat16))
    held = start.on(session)
    assert held.on(session) is held
    (piece,) = held.past("cuda").pieces
    assert piece.data_ptr() == held.held.words.ctypes.data
    assert torch.equal(piece.view(torch.int16), start.history.view(torch.int16))
    assert held.past("cuda").digest == start.past("cpu").digest
    given = replace(start, digest=b"", history=torch.cat((start.history, start.history), dim=3))
    assert given.past("cpu").digest == Past.of(start.history).digest, "by content, of the positions before it"

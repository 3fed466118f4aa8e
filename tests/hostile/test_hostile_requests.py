"""Requests that the server's schema does not allow: a sample of `make soak`'s."""

import json
import random

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")

from tests.strength.soak.hostile.requests import HostileRequest, all_changes, violation, violations


def test_a_value_that_the_schema_does_not_allow_is_refused_by_its_place_and_any_other_is_taken(seed):
    assert violations(200, random.Random(seed)) == []


def test_each_kind_of_change_is_made(seed):
    """All changes of 60 bodies: a body has parts in its messages as often as not, so hardly ever has none of them."""
    changes = [(change[0], change[2]) for change in all_changes("/v1/chat/completions", random.Random(seed), 60)]
    places = {tuple(part for part in place if isinstance(part, str)) for place, _ in changes}
    assert places >= {("messages", "content", "text"), ("messages", "magic"), ("temperature",), ("tools",), ("stop",)}
    assert 0.1 < sum(legal for _, legal in changes) / len(changes) < 0.5


def error(param, message, **more):
    return json.dumps({"error": {"message": message, "type": "t", "param": param, "code": "c", **more}}).encode()


BAD = HostileRequest("/v1/completions", {}, ("stop", 1), legal=False)


@pytest.mark.parametrize(
    ("legal", "status", "answer"),
    [
        (True, 422, b"{}"),
        (False, 200, b"{}"),
        (False, 500, error("stop[1]", "stop[1]: is no text")),
        (False, 422, error("stop", "stop[1]: is no text")),
        (False, 422, error("stop[1]", "is no text")),
        (False, 422, error("stop[1]", "stop[1]: is\nno text")),
        (False, 422, error("stop[1]", "stop[1]: is no text", place=3)),
    ],
)
def test_the_rule_finds_each_way_to_break_it(legal, status, answer):
    assert violation(HostileRequest(BAD.path, BAD.body, BAD.place, legal), status, answer)
    assert violation(BAD, 422, error("stop[1]", "stop[1]: is no text")) == ""

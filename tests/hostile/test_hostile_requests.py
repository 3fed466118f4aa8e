"""Requests that the server's schema does not allow: a sample of those that `make soak` tries."""

import json
import random

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")

from experiments.soak.hostile.requests import Request, requests, violation, violations


def test_a_value_that_the_schema_does_not_allow_is_refused_by_its_place_and_any_other_is_taken(seed):
    assert violations(200, random.Random(seed)) == []


def test_each_kind_of_change_is_made(seed):
    made = [request for request, _ in zip(requests(random.Random(seed)), range(1500), strict=False)]
    places = {(request.path, tuple(part for part in request.place if isinstance(part, str))) for request in made}
    chat = {place for path, place in places if path == "/v1/chat/completions"}
    assert chat >= {("messages", "content", "text"), ("messages", "magic"), ("temperature",), ("tools",), ("stop",)}
    assert 0.1 < sum(request.legal for request in made) / len(made) < 0.5


def error(param, message, **more):
    return json.dumps({"error": {"message": message, "type": "t", "param": param, "code": "c", **more}}).encode()


BAD = Request("/v1/completions", {}, ("stop", 1), legal=False)


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
    assert violation(Request(BAD.path, BAD.body, BAD.place, legal), status, answer)
    assert violation(BAD, 422, error("stop[1]", "stop[1]: is no text")) == ""

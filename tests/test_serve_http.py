"""HTTP below the application: bodies that are too long or without a length, and other ways in."""

import json
from contextlib import closing
from http.client import HTTPConnection

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

from fake_engine import following
from serving import LIMITS, PATIENCE_S, serving

PATH, JSON = "/v1/completions", {"Content-Type": "application/json"}
CHUNKED = JSON | {"Transfer-Encoding": "chunked"}


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


@pytest.fixture
def connection(server):
    with closing(HTTPConnection(server.address.removeprefix("http://"), timeout=PATIENCE_S)) as made:
        yield made


def check_error(connection, status, code):
    answer = connection.getresponse()
    error = json.loads(answer.read())["error"]
    assert (answer.status, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}


def test_a_client_that_sends_too_much_reads_why_and_goes_on(connection):
    """The body is longer than what the socket's buffers hold, so that closing the connection would be noticed."""
    long = b"x" * 30_000_000
    connection.request("POST", PATH, long, JSON)
    check_error(connection, 413, "too_long")
    for headers in (CHUNKED, CHUNKED | {"Content-Length": "5"}):  # a proxy in front may take the other length
        connection.request("POST", PATH, b"%x\r\n%s\r\n0\r\n\r\n" % (len(long), long), headers)
        check_error(connection, 411, "length")
    body = {"model": "fake", "prompt": [3, 1, 4], "max_tokens": 5, "return_token_ids": True}
    connection.request("POST", PATH, json.dumps(body), JSON)
    assert json.load(connection.getresponse())["choices"][0]["token_ids"] == following([3, 1, 4], 5)


def test_a_body_that_a_client_only_offers_is_refused_before_it_comes(connection):
    length = str(2000 * LIMITS["body_kb"])
    connection.request("POST", PATH, headers=JSON | {"Content-Length": length, "Expect": "100-continue"})
    check_error(connection, 413, "too_long")


def test_websockets_are_no_way_in(connection):
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    connection.request("GET", "/x", headers=key | {"Connection": "Upgrade", "Upgrade": "websocket"})
    check_error(connection, 404, "not_found")


def test_a_load_balancer_may_ask_for_the_head_alone(server):
    answer = server.http.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")

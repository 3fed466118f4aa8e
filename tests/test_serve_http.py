"""HTTP below the application: bodies that are too long or too slow, heads that never end, requests that are none."""

import json
import logging
import socket
import time
from select import select

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

from fake_engine import following
from serving import LIMITS, PATIENCE_S, serving

from experiments.serving import limits, protocol

HEAD = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


class Connection:
    """A raw connection to a server."""

    def __init__(self, server):
        host, port = server.address.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self.file = self.socket.makefile("rb")

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def answer(self):
        """Status, headers and body of the next answer."""
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        body = self.file.read(int(headers["content-length"])) if "content-length" in headers else self.file.read()
        return status, headers, json.loads(body)

    @property
    def ended(self):
        """Wait until the server closes the connection without more to say."""
        return self.file.read() == b""


@pytest.fixture
def connection(server):
    made = Connection(server)
    yield made
    made.socket.close()


@pytest.fixture
def tracebacks(caplog):
    """Tracebacks in the server's log; uvicorn's own logger does not propagate."""
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    yield lambda: [record.getMessage() for record in caplog.records if record.exc_info]
    logger.removeHandler(caplog.handler)


def check_error(answer, status, code):
    assert (answer[0], answer[2]["error"]["code"]) == (status, code)
    assert set(answer[2]["error"]) == {"message", "type", "param", "code"}


def good(prompt=(1, 2), count=2):
    body = json.dumps({"model": "fake", "prompt": prompt, "max_tokens": count, "return_token_ids": True})
    return f"{HEAD}Content-Length: {len(body)}\r\n\r\n{body}"


def test_a_client_that_sends_too_much_reads_why_and_goes_on(connection):
    """The body is longer than what the socket's buffers hold, so that closing the connection would be noticed."""
    size = 30_000_000
    connection.send(good())
    assert connection.answer()[0] == 200
    connection.send(f"{HEAD}Content-Length: {size}\r\n\r\n")
    connection.send(b"x" * size)
    check_error(connection.answer(), 413, "too_long")
    connection.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n")
    connection.send(b"x" * size)
    connection.send("\r\n0\r\n\r\n")
    check_error(connection.answer(), 413, "too_long")
    connection.send(good((3, 1, 4), 5))
    assert connection.answer()[2]["choices"][0]["token_ids"] == following([3, 1, 4], 5)


def test_a_body_that_a_client_only_offers_is_refused_before_it_comes(connection):
    connection.send(f"{HEAD}Content-Length: {2000 * LIMITS['body_kb']}\r\nExpect: 100-continue\r\n\r\n")
    answer = connection.answer()
    check_error(answer, 413, "too_long")
    assert answer[1]["connection"] == "close"
    assert connection.ended


def test_a_body_that_is_too_slow_is_not_waited_for(connection, monkeypatch):
    monkeypatch.setattr(limits, "BODY_S", 0.1)
    connection.send(f"{HEAD}Content-Length: 10\r\n\r\n{{")
    check_error(connection.answer(), 408, "slow")


def test_a_head_that_is_too_slow_is_not_waited_for(server, monkeypatch):
    """Each header that arrives is no new beginning."""
    monkeypatch.setattr(protocol, "HEAD_S", 0.5)
    slow, silent = Connection(server), Connection(server)
    slow.send("GET /health HTTP/1.1\r\n")
    end = time.monotonic() + PATIENCE_S
    while not select([slow.socket], [], [], 0.05)[0]:
        assert time.monotonic() < end
        slow.send("X-More: x\r\n")
    check_error(slow.answer(), 408, "slow")
    assert silent.ended
    assert server.http.get("/health").status_code == 200


def test_the_rest_of_a_refused_body_is_not_waited_for_either(server, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    endless = Connection(server)
    endless.send(f"{HEAD}Content-Length: {2000 * LIMITS['body_kb']}\r\n\r\nx")
    check_error(endless.answer(), 413, "too_long")
    assert endless.ended


def test_a_body_with_two_lengths_is_refused(connection):
    connection.send(f"{HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    answer = connection.answer()
    check_error(answer, 400, "framing")
    assert answer[1]["connection"] == "close"
    assert connection.ended


@pytest.mark.parametrize(
    "text", ["no HTTP at all\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nX: " + 99999 * "x"]
)
def test_what_is_not_http_is_answered_in_openais_error_json(connection, text):
    connection.send(text)
    check_error(connection.answer(), 400, "http")
    assert connection.ended


def test_a_fault_in_the_middle_of_a_body_is_answered_once(connection, server, monkeypatch, tracebacks):
    monkeypatch.setattr(limits, "BODY_S", 0.2)
    monkeypatch.setattr(protocol, "HEAD_S", 0.5)
    connection.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n")
    connection.send("no number\r\n")
    check_error(connection.answer(), 400, "http")
    assert connection.ended
    connection.send("more of it")
    end = time.monotonic() + PATIENCE_S
    while server.server.server_state.connections:  # a client that does not close is not kept
        assert time.monotonic() < end
        time.sleep(0.02)
    assert tracebacks() == []


def test_a_fault_in_the_middle_of_a_refused_body_ends_the_connection(connection, tracebacks):
    connection.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n")
    connection.send("5000\r\n" + 0x5000 * "x" + "\r\n")
    check_error(connection.answer(), 413, "too_long")
    connection.send("no number\r\n")
    assert connection.ended
    assert tracebacks() == []


def test_websockets_are_no_way_in(connection):
    head = "GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    connection.send(f"{head}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
    check_error(connection.answer(), 404, "not_found")


def test_a_load_balancer_may_ask_for_the_head_alone(server):
    answer = server.http.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")

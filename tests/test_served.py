"""A rival behind an address: the lab's own server, and a plain one that answers as others do, or wrongly."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import following

from common.errors import LabError
from experiments.engines.arms import arms
from experiments.engines.race import Answer, Workload
from experiments.engines.served import served

PROMPTS, TOKENS = ((5,), (5, 6, 7)), 4


def work() -> Workload:
    lab = SimpleNamespace(config=SimpleNamespace(device=SimpleNamespace(name="ptx")))
    return Workload(lab, PROMPTS, TOKENS)


def chunk(text: str, **more: Any) -> str:
    return "data: " + json.dumps({"choices": [{"text": text}], **more})


MODELS = {"object": "list", "data": [{"id": "qwen", "owned_by": "others"}]}
# A server that returns texts, with its usage behind them.
TEXTS = [chunk("Once "), "", chunk("upon"), ": a comment", chunk("", usage={"completion_tokens": 3}), "data: [DONE]"]


OPENAI = {"model", "prompt", "temperature", "max_tokens", "stream", "stream_options"}  # fields that all servers take


@contextmanager
def answering(paths: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server with these answers by path: JSON, lines of a stream, or the number of an error. Its address, its bodies.

    A text is sent as it is; a function makes the answer of a body.
    """
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = paths.get(self.path, 404)
            found = found(bodies[-1]) if callable(found) else found
            self.send_response(found if isinstance(found, int) else 200)
            self.end_headers()
            whole = found if isinstance(found, str) else json.dumps(found)
            self.wfile.write(("\n".join(found) if isinstance(found, list) else whole).encode())

        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
        server.shutdown()
        thread.join()


def test_the_labs_own_server_returns_the_ids():
    from serving import serving

    with serving() as running:
        ran = served(work(), f"{running.address}/v1/#fake")
        with pytest.raises(LabError, match=r"/v1 serves fake, .* more, not nope; name one of its models: .*/v1#MODEL$"):
            served(work(), f"{running.address}/v1#nope")
    assert [run.answer for run in ran.runs] == [Answer(following(prompt, TOKENS)) for prompt in PROMPTS]
    assert (ran.validated, ran.version, ran.peak_bytes) == ("ids", "megakernel-lab, version unknown", None)


def test_a_server_without_ids_returns_its_text_and_its_version():
    paths = {"/v1/models": MODELS, "/v1/completions": TEXTS, "/version": {"version": "1.2.3"}}
    with answering(paths) as (address, bodies):
        ran = served(work(), address)
    assert [run.answer for run in ran.runs] == [Answer(text="Once upon", count=3)] * 2
    assert (ran.validated, ran.version) == ("text", "others 1.2.3")
    assert [(body["prompt"], body["max_tokens"]) for body in bodies] == [([*prompt], TOKENS) for prompt in PROMPTS]
    assert {(body["model"], body["temperature"], body["stream"]) for body in bodies} == {("qwen", 0, True)}


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_that_takes_no_other_fields_is_asked_without_them(code):
    def completions(body: dict[str, Any]) -> int | list[str]:
        return code if body.keys() - OPENAI else TEXTS

    with answering({"/v1/models": MODELS, "/v1/completions": completions}) as (address, bodies):
        ran = served(work(), address)
    assert [run.answer for run in ran.runs] == [Answer(text="Once upon", count=3)] * 2
    assert len(bodies) == 3, "the first one again"


TWO = {"data": [{"id": "a"}, {"id": "b"}]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such path": ({}, r"/v1/models answers 404: 404; give options\.servers the address of a server, with its /v1: "),
    "a page": ({"/v1/models": "<html>"}, r"/v1/models lists no models; give options\.servers"),
    "another list": ({"/v1/models": {"data": [1]}}, "lists no models"),
    "two models": ({"/v1/models": TWO}, r"/v1 serves a, b; name one of its models: .*/v1#MODEL$"),
    "no completions": ({"/v1/models": MODELS}, r"/v1/completions answers 404"),
    "a broken chunk": ({"/v1/models": MODELS, "/v1/completions": ["data: {"]}, "broke off its answer: "),
    "an error": (
        {"/v1/models": MODELS, "/v1/completions": ['data: {"error": {"message": "too long"}}']},
        r'completions: \{"message": "too long"\}; see the server',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_server_that_answers_wrongly_is_one_line(name):
    paths, message = WRONG[name]
    with answering(paths) as (address, _), pytest.raises(LabError, match=message) as refused:
        served(work(), address)
    assert "\n" not in str(refused.value)


def test_an_address_without_a_server_is_one_line():
    with answering({}) as (address, _):
        pass
    with pytest.raises(
        LabError, match=r"/v1/models does not answer: .*refused.*; start the server, or correct options"
    ):
        served(work(), address)


@pytest.mark.parametrize("address", ["localhost:8000", "/v1", "ftp://host/v1", "http://", "http://[::1", "http://a:x"])
def test_what_is_no_address_is_refused_before_anything_runs(address):
    with pytest.raises(LabError, match=r"options\.servers: .* is no address; give options\.servers the address"):
        arms((address,))

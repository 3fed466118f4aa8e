"""The server with a fake engine: OpenAI's API, its errors, limits, and what goes wrong."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

import httpx
import openai
from fake_engine import BUG, HANG, LOSSES, POSITIONS, SLOW, FakeDecoder, following, text_of
from fastapi.testclient import TestClient
from serving import BASELINE, LIMITS, PATIENCE_S, serving

from common.errors import LabError
from experiments.serving.app import make_app
from experiments.serving.line import Line
from experiments.serving.models import ServedModels
from experiments.serving.settings import Settings

PROMPT = [3, 1, 4]
PATH, JSON = "/v1/completions", {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def test_completions_by_the_official_client(server):
    found = server.openai.completions.create(model="fake", prompt=PROMPT, max_tokens=9)
    assert (found.object, found.model) == ("text_completion", "fake")
    assert found.choices[0].text == text_of(following(PROMPT, 9))
    assert found.choices[0].finish_reason == "length"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (3, 9, 12)
    by_text = server.openai.completions.create(model="fake", prompt="hi")
    assert by_text.choices[0].text == text_of(following([ord("h"), ord("i")], 16)), "16 tokens, as OpenAI's default"


def test_a_chat_is_streamed_with_its_usage(server):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    body = {"model": "fake", "messages": messages, "max_tokens": 7}
    chunks = list(server.openai.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    whole = server.openai.chat.completions.create(**body)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == text_of(following([ord(one) for one in "be briefhi"], 7))
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-2:] == [None, "length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    plain = list(server.openai.chat.completions.create(**body, stream=True))
    assert all(chunk.usage is None for chunk in plain)


def test_without_a_limit_a_chat_ends_where_the_cache_is_full(server):
    found = server.openai.chat.completions.create(model="fake", messages=[{"role": "user", "content": "abcd"}])
    assert found.usage.completion_tokens == POSITIONS - 4 + 1
    assert found.choices[0].finish_reason == "length"


def test_a_model_id_chooses_the_variant_and_knobs_go_with_it(server):
    names = [model.id for model in server.openai.models.list()]
    assert names[:2] == ["fake", "fake:baseline"]
    one = server.openai.models.retrieve("fake:vec128")
    assert one.id == "fake:vec128"
    assert 0 <= time.time() - one.created < 86_400, "the start of the server"
    assert server.ids(PROMPT, 5, model="fake:vec128") == following(PROMPT, 5, shift=1)
    assert server.ids(PROMPT, 5) == following(PROMPT, 5)
    knobs = {"return_token_ids": True, "knobs": {"l1": "no_allocate"}}
    assert server.ids(PROMPT, 5, model="fake:vec128", extra_body=knobs) == following(PROMPT, 5, shift=1)
    with pytest.raises(openai.UnprocessableEntityError, match="takes no knob ratio"):
        server.ids(PROMPT, 5, model="fake:vec128", extra_body={"knobs": {"ratio": "2:6"}})


GOOD = {"model": "fake", "prompt": [1]}
WRONG = {  # body of /v1/completions: status and `param` of the answer
    "not JSON": ("{", 400, None),
    "not an object": ([1], 422, None),
    "no model": ({"prompt": [1]}, 422, "model"),
    "unknown model": (GOOD | {"model": "gpt-7"}, 404, "model"),
    "unknown variant": (GOOD | {"model": "fake:vec129"}, 404, "model"),
    "empty prompt": (GOOD | {"prompt": []}, 422, "prompt"),
    "five stop strings": (GOOD | {"stop": list("abcde")}, 422, "stop"),
    "NaN": ('{"model": "fake", "prompt": [1], "temperature": NaN}', 422, "temperature"),
    "deep": ('{"model": ' + "[" * 9000, 400, None),
    "stop strings of no length": (GOOD | {"stop": [""]}, 422, "stop[0]"),
}


@pytest.mark.parametrize(("body", "status", "param"), WRONG.values(), ids=WRONG)
def test_a_wrong_body_is_answered_in_openais_error_json(server, body, status, param):
    text = body if isinstance(body, str) else json.dumps(body)
    answer = server.http.post(PATH, content=text, headers=JSON)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert "\n" not in error["message"]
    assert server.ids(PROMPT, 2) == following(PROMPT, 2), "the server lives on"


JUNK = (None, True, -1, 0, 2**70, 1.5, 1e308, float("nan"), float("inf"), "", "x", "\ud800", [], [[]], {}, {"a": [1]})
CHAT = {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {}}
NAMES = ("temperature", "top_p", "top_k", "seed", "stream", "stream_options", "n", "tools", "logit_bias", "magic")


def test_any_value_of_any_field_is_answered_or_refused_by_its_name(server, seed):
    chance = random.Random(seed)
    for _ in range(200):
        path, own = chance.choice(((PATH, {"prompt": [1, 2]}), ("/v1/chat/completions", CHAT)))
        body = {"model": "fake:vec128", "max_tokens": 2, "knobs": {"l1": "default"}, "stop": ["zz"], **own}
        name, junk = chance.choice((*body, *NAMES)), chance.choice(JUNK)
        inner = isinstance(body.get(name), dict) and body[name] and chance.random() < 0.5
        body[name] = dict.fromkeys(body[name], junk) if inner else junk
        answer = server.http.post(path, content=json.dumps(body), headers=JSON)
        assert answer.status_code in (200, 404, 422), (body, answer.text)
        if answer.status_code != 200:
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["param"].split(".")[0].split("[")[0] == name, (body, error)
            assert error["code"] != "invalid" or error["message"].startswith(f"{error['param']}: ")
            assert "\n" not in error["message"]
    assert server.ids(PROMPT, 2) == following(PROMPT, 2), "the server lives on"


def test_wrong_paths_and_methods_are_answered_so_too(server):
    for method, path, status in (("GET", "/v1/x", 404), ("GET", "/openapi.json", 404), ("GET", "/v1/completions", 405)):
        answer = server.http.request(method, path)
        assert (answer.status_code, set(answer.json()["error"])) == (status, {"message", "type", "param", "code"})


def test_a_text_without_a_tokenizer_is_refused_with_the_remedy():
    with serving(partial(FakeDecoder, mute=True)) as server:
        with pytest.raises(openai.UnprocessableEntityError, match="send the prompt as token ids"):
            server.openai.completions.create(model="fake", prompt="hi")
        assert server.ids(PROMPT, 3) == following(PROMPT, 3)


def test_who_may_ask():
    with serving(api_key="secret") as server:
        assert server.ids(PROMPT, 2) == following(PROMPT, 2)
        wrong = openai.OpenAI(base_url=f"{server.address}/v1", api_key="guess", max_retries=0)
        with pytest.raises(openai.AuthenticationError, match="API key is missing or wrong"):
            wrong.models.list()
        for path, status in (("/health", 200), ("/v1/models", 401), ("/lab", 401), ("/", 200)):
            assert server.http.get(path, headers={"Authorization": ""}).status_code == status, path
        answer = server.http.get("/v1/models", headers={"Host": "evil.example:8000"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host")
        for origin, status in (("https://evil.example", 403), ("null", 403), (server.address, 200)):
            assert server.http.get("/v1/models", headers={"Origin": origin}).status_code == status, origin


def test_one_at_a_time_and_a_bounded_queue():
    with serving(queue=1) as server:
        streams = [server.openai.completions.create(**GOOD | {"prompt": [1, SLOW], "max_tokens": 200}, stream=True)]
        next(iter(streams[0]))
        waiting: list[object] = []
        second = threading.Thread(target=lambda: waiting.append(server.ids(PROMPT, 3)))
        second.start()
        server.waits(1)
        with pytest.raises(openai.RateLimitError) as full:
            server.ids(PROMPT, 3)
        assert int(full.value.response.headers["Retry-After"]) >= 1
        assert not waiting, "only one request is on the device"
        streams[0].close()  # the client leaves: its place is free before its 200 tokens are made
        second.join(PATIENCE_S)
        assert waiting == [following(PROMPT, 3)]
        server.cancelled(1)


def test_an_answer_in_one_piece_ends_when_its_client_leaves():
    with serving() as server:
        body, impatient = GOOD | {"prompt": [1, SLOW], "max_tokens": 200}, httpx.Timeout(PATIENCE_S, read=0.1)
        with pytest.raises(httpx.ReadTimeout):
            server.http.post(PATH, json=body, timeout=impatient)
        server.cancelled(1)


def test_a_deadline_holds_in_the_queue_and_in_an_answer():
    with serving(deadline_s=0.5) as server:
        with pytest.raises(openai.InternalServerError, match=r"not finished within 0\.5 s") as late:
            server.ids([1, SLOW], 200)
        assert late.value.status_code == 504
        body = GOOD | {"prompt": [1, SLOW], "max_tokens": 200}
        with pytest.raises(openai.APIError, match=r"not finished within 0\.5 s"):
            list(server.openai.completions.create(**body, stream=True))
        server.cancelled(2)  # and the device stops


def lose(what, cause):
    """Let a server run into a loss of its device while another request waits."""
    with ThreadPoolExecutor() as clients, serving() as server:
        stream = server.openai.completions.create(**GOOD | {"prompt": [1, SLOW], "max_tokens": 200}, stream=True)
        next(iter(stream))
        failing = clients.submit(server.ids, [1, what], 3)
        server.waits(1)
        waiting = clients.submit(server.ids, PROMPT, 3)
        server.waits(2)
        stream.close()
        assert (failing.exception().status_code, failing.exception().body["code"]) == (503, "device_lost")
        assert cause in str(failing.exception())
        assert (waiting.exception().status_code, waiting.exception().body["code"]) == (503, "server_ending")


@pytest.mark.parametrize("what", LOSSES)
def test_a_device_that_is_lost_ends_the_server_and_says_why(what, capfd):
    cause = "ZeroDivisionError in the server" if what == BUG else str(LOSSES[what])
    with pytest.raises(LabError, match=cause):
        lose(what, cause)
    assert ("Traceback" in capfd.readouterr().err) == (what == BUG)


def test_a_line_without_a_device_is_not_healthy():
    settings = Settings(**LIMITS)
    line = Line(settings)
    app = make_app(line, FakeDecoder(), ServedModels("fake", BASELINE), settings)
    health = partial(TestClient(app, base_url="http://127.0.0.1").get, "/health")
    assert health().status_code == 200
    line.lost = LOSSES[HANG]
    assert health().status_code == 503


def test_the_end_of_the_server_is_said_to_those_who_wait():
    with serving() as server:
        body = GOOD | {"prompt": [1, SLOW], "max_tokens": 200}
        stream = server.openai.completions.create(**body, stream=True)
        next(iter(stream))
        server.end()
        with pytest.raises(openai.APIError, match="the server ends") as ended:
            list(stream)
        assert ended.value.code == "server_ending"


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
    chunked = JSON | {"Transfer-Encoding": "chunked"}
    for headers in (chunked, chunked | {"Content-Length": "5"}):  # a proxy in front may take the other length
        connection.request("POST", PATH, b"%x\r\n%s\r\n0\r\n\r\n" % (len(long), long), headers)
        check_error(connection, 411, "length")
    body = GOOD | {"prompt": PROMPT, "max_tokens": 5, "return_token_ids": True}
    connection.request("POST", PATH, json.dumps(body), JSON)
    assert json.load(connection.getresponse())["choices"][0]["token_ids"] == following(PROMPT, 5)


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

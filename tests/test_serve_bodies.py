"""Bodies of requests: which fields, types and values are taken, and how a mistake is named."""

import json
import typing
from functools import partial

import pytest

pytest.importorskip("fastapi", reason="needs the extra `serve`")
pytest.importorskip("openai", reason="needs the extra `dev`")

from fake_engine import POSITIONS, VOCAB, FakeDecoder, following
from openai.types.chat import ChatCompletionMessage, completion_create_params
from openai.types.chat.chat_completion_assistant_message_param import ChatCompletionAssistantMessageParam
from openai.types.completion_create_params import CompletionCreateParamsBase
from serving import serving

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = {"role": "user", "content": "hi"}
GOOD = {TEXT: {"model": "fake", "prompt": [1, 2]}, CHAT: {"model": "fake", "messages": [HELLO], "max_tokens": 2}}
CALL, TOOLS = (
    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    "this server has no tools; ",
)
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def post(server, path, body):
    """Status, and the answer as JSON."""
    answer = server.http.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    return answer.status_code, answer.json()


def third(**wrong):
    """Messages; the fourth has wrong fields."""
    return {"messages": [HELLO, HELLO, HELLO, HELLO | wrong]}


WRONG = {  # the path, what is wrong in the body, `param`, and a part of the message
    "an image": (CHAT, third(content=[{"type": "text", "text": "x"}, PNG]), "messages[3].content[1].type", "'text'"),
    "no content": (CHAT, {"messages": [HELLO, {"role": "user"}]}, "messages[1].content", "is required"),
    "content of another type": (
        CHAT,
        third(content=5),
        "messages[3].content",
        "valid string, or should be a valid list",
    ),
    "another role": (CHAT, third(role="critic"), "messages[3].role", "'developer'"),
    "an unknown field of a message": (CHAT, third(images=["x"]), "messages[3].images", "not served here"),
    "a name": (CHAT, third(name="me"), "messages[3].name", "leave it out"),
    "an effort": (CHAT, {"reasoning_effort": "low"}, "reasoning_effort", "leave it out"),
    "calls of tools": (CHAT, third(role="assistant", content=None, tool_calls=[CALL]), "messages[3].tool_calls", TOOLS),
    "a call": (
        CHAT,
        third(role="assistant", content=None, function_call={"name": "f"}),
        "messages[3].function_call",
        TOOLS,
    ),
    "what a tool found": (CHAT, third(role="tool", tool_call_id="1"), "messages[3].role", TOOLS),
    "what a function found": (CHAT, third(role="function", name="f"), "messages[3].role", TOOLS),
    "an unknown field of a part": (
        CHAT,
        third(content=[{"type": "text", "text": "x", "cache_control": {}}]),
        "messages[3].content[0].cache_control",
        "not served here",
    ),
    "a message that is none": (CHAT, {"messages": [HELLO, "x"]}, "messages[1]", "should be an object"),
    "no message": (CHAT, {"messages": []}, "messages", "at least 1"),
    "no messages": (CHAT, {"messages": None}, "messages", "list"),
    "true for a number of tokens": (TEXT, {"max_tokens": True}, "max_tokens", "integer"),
    "a number in quotes": (TEXT, {"max_tokens": "2"}, "max_tokens", "integer"),
    "true for a number": (TEXT, {"temperature": True}, "temperature", "number"),
    "1 for true": (TEXT, {"stream": 1}, "stream", "boolean"),
    "true for one answer": (TEXT, {"n": True}, "n", "not served here"),
    "true for a token": (TEXT, {"prompt": [5, True]}, "prompt[1]", "integer"),
    "a negative token": (TEXT, {"prompt": [5, 6, -1]}, "prompt[2]", "greater than or equal to 0"),
    "two prompts": (TEXT, {"prompt": ["a", "b"]}, "prompt", "one prompt"),
    "a prompt of another type": (TEXT, {"prompt": 5}, "prompt", "string, or should be a valid list"),
    "no prompt": (TEXT, {"prompt": None}, "prompt", "string"),
    "a temperature that is too low": (TEXT, {"temperature": 0.0005}, "temperature", "not a number in 0.001.."),
    "a temperature that is too high": (TEXT, {"temperature": 2.1}, "temperature", "less than or equal to 2"),
    "a penalty that is too low": (TEXT, {"repetition_penalty": 0.001}, "repetition_penalty", "0.01"),
    "an unknown option of streams": (TEXT, {"stream_options": {"x": 1}}, "stream_options.x", "not served here"),
    "an unknown field with a strange name": (TEXT, {"a\nb" * 90: 1}, '"' + r"a\nb" * 20 + '"', "not served here"),
    "half a character in a name": (TEXT, {"a\ud800": 1}, None, "a name has half of a surrogate pair"),
    "a knob of another type": (TEXT, {"knobs": {"l1": 1.5}}, "knobs.l1", "valid integer, or should be a valid string"),
    "half a character": (CHAT, third(content="\ud800"), "messages[3].content", "has half of a surrogate pair"),
    "JSON": (CHAT, {"response_format": {"type": "json_object"}}, "response_format", "not served here"),
    "tools": (CHAT, {"tools": [{"type": "function"}]}, "tools", TOOLS),
    "a tool that must be called": (CHAT, {"tool_choice": "required"}, "tool_choice", TOOLS),
    "fewer tokens than none": (TEXT, {"max_tokens": -2}, "max_tokens", "greater than or equal to 1"),
    "no token": (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens", "greater than or equal to 1"),
    "-1.0 for none": (TEXT, {"seed": -1.0}, "seed", "integer"),
    "-1 where 0 means none": (TEXT, {"temperature": -1}, "temperature", "greater than or equal to 0"),
    "a number with 400 digits": (TEXT, {"temperature": 10**400}, "temperature", "number"),
    "an id beyond the vocabulary": (
        TEXT,
        {"prompt": [1, VOCAB]},
        "prompt",
        f"id {VOCAB} is not in 0..{VOCAB - 1}",
    ),
    "a knob that the variant has not": (TEXT, {"knobs": {"ratio": "2:6"}}, "knobs", "takes no knob ratio"),
}


@pytest.mark.parametrize(("path", "wrong", "param", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named_by_field_and_index(server, path, wrong, param, message):
    status, answer = post(server, path, GOOD[path] | wrong)
    assert (status, answer["error"]["param"]) == (422, param), answer
    assert message in answer["error"]["message"]


FULL = {
    "a prompt": (TEXT, {"prompt": [1] * (POSITIONS + 2)}, "prompt", "shorten the prompt"),
    "a text": (TEXT, {"prompt": "x" * (POSITIONS + 2)}, "prompt", "shorten the prompt"),
    "a conversation": (
        CHAT,
        {"messages": [{"role": "user", "content": "x" * 300}]},
        "messages",
        "shorten the conversation",
    ),
    "an answer": (TEXT, {"max_tokens": POSITIONS}, "max_tokens", f"or ask for at most {POSITIONS - 1}"),
    "an answer in a chat": (CHAT, {"max_completion_tokens": 999}, "max_completion_tokens", "or ask for at most 255"),
}


@pytest.mark.parametrize(("path", "long", "param", "remedy"), FULL.values(), ids=FULL)
def test_a_full_context_has_openais_code_and_a_remedy_of_the_api(server, path, long, param, remedy):
    status, answer = post(server, path, GOOD[path] | long)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "context_length_exceeded", param)
    assert remedy in answer["error"]["message"]
    assert "positions" not in answer["error"]["message"]


def test_what_just_fits_is_answered(server):
    assert post(server, TEXT, GOOD[TEXT] | {"max_tokens": POSITIONS - 1})[0] == 200
    assert post(server, TEXT, {"model": "fake", "prompt": [1] * POSITIONS, "max_tokens": 1})[0] == 200


def fields(typed: type) -> set[str]:
    return {name for name in typing.get_type_hints(typed) if name not in ("model", "prompt", "messages")}


def test_null_means_absent_for_every_field_of_the_official_client(server):
    chat = fields(completion_create_params.CompletionCreateParamsBase) | {"stream"}
    plain = {TEXT: post(server, TEXT, GOOD[TEXT] | {"seed": 1}), CHAT: post(server, CHAT, GOOD[CHAT] | {"seed": 1})}
    for path, names in ((TEXT, fields(CompletionCreateParamsBase) | {"stream"}), (CHAT, chat - {"max_tokens"})):
        status, found = post(server, path, GOOD[path] | dict.fromkeys(names) | {"seed": 1})
        assert (status, found["choices"]) == (200, plain[path][1]["choices"])
        nulls = dict.fromkeys(names - {"stream_options"}) | {"stream_options": {"include_usage": None}}
        assert post(server, path, GOOD[path] | nulls)[0] == 200


IDLE = {
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0,
    "logit_bias": {},
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "store": False,
    "metadata": {},
    "service_tier": "auto",
    "suffix": "",
    "user": "me",
    "safety_identifier": "me",
    "prompt_cache_key": "me",
}


def test_what_asks_for_nothing_is_taken(server):
    for path, good in GOOD.items():
        want = post(server, path, good | {"seed": 1})
        found = post(server, path, good | IDLE | {"seed": 1})
        assert (found[0], found[1]["choices"]) == (200, want[1]["choices"])
        assert post(server, path, good | {"tool_choice": "auto", "service_tier": "default"})[0] == 200


def test_an_answer_of_the_official_client_is_taken_back_as_a_message(server):
    turn = ChatCompletionMessage(role="assistant", content="ab").model_dump()
    assert turn["tool_calls"] is None
    told = post(server, CHAT, GOOD[CHAT] | {"messages": [HELLO, turn, HELLO]})
    assert (told[0], told[1]["usage"]["prompt_tokens"]) == (200, 6)
    nulls = dict.fromkeys(typing.get_type_hints(ChatCompletionAssistantMessageParam)) | turn
    assert post(server, CHAT, GOOD[CHAT] | {"messages": [HELLO, nulls, HELLO]})[0] == 200


def test_a_developer_is_the_system():
    from experiments.serving.schema import Message

    assert Message(role="developer", content="be brief").plain == {"role": "system", "content": "be brief"}


def test_a_seed_is_fresh_unless_given_and_is_told(server):
    body = GOOD[TEXT] | {"temperature": 1.0}
    seeds = [post(server, TEXT, body)[1]["seed"] for _ in range(3)]
    assert len(set(seeds)) == 3, "each a draw of 2**32"
    assert post(server, TEXT, body | {"seed": 7})[1]["seed"] == 7
    streamed = list(server.openai.completions.create(**body, seed=9, stream=True))
    assert {chunk.seed for chunk in streamed} == {9}


@pytest.mark.parametrize("given", [{}, {"seed": -1}])
def test_the_engine_gets_the_seed_that_is_told(given, monkeypatch):
    from fake_engine import FakeEngine

    from experiments.serving.schema import CompletionBody

    fresh, seen = CompletionBody(model="fake", prompt=[1], **given), []
    monkeypatch.setattr(FakeEngine, "stream", lambda self, request, cancelled: seen.append(request) or [])
    list(FakeDecoder().answer(fresh, "baseline", lambda: False))
    assert seen[0].sampling.seed == fresh.seed >= 0
    assert CompletionBody(model="fake", prompt=[1], **given).seed != fresh.seed


def test_minus_one_is_no_limit(server):
    """As clients of llama.cpp and vLLM mean it: an answer until the KV cache is full, from all tokens."""
    for path, field in ((TEXT, "max_tokens"), (CHAT, "max_tokens"), (CHAT, "max_completion_tokens")):
        body = {name: value for name, value in GOOD[path].items() if name != "max_tokens"}
        status, found = post(server, path, body | {field: -1, "top_k": -1})
        assert (status, found["choices"][0]["finish_reason"]) == (200, "length")
        assert found["usage"]["total_tokens"] == POSITIONS + 1, "the last token needs no place"


def test_chunks_say_null_until_the_usage_is_known(server):
    body = GOOD[TEXT] | {"max_tokens": 3, "stream": True}

    def chunks(**options):
        answer = server.http.post(TEXT, json=body | {"stream_options": options})
        return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]

    *parts, last = chunks(include_usage=True)
    assert [part["usage"] for part in parts] == [None] * 3
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    *parts, last = chunks(include_usage=True, continuous_usage_stats=True)
    assert [part["usage"]["completion_tokens"] for part in parts] == [1, 2, 3]
    assert not any("prompt_tokens_details" in part["usage"] for part in parts), "not known before the end"
    assert not any("usage" in part for part in chunks())


def test_a_model_that_cannot_chat_says_which_path_can():
    with serving(partial(FakeDecoder, mute=True)) as mute:
        status, answer = post(mute, CHAT, GOOD[CHAT])
        assert (status, answer["error"]["param"]) == (422, "messages")
        assert "use /v1/completions" in answer["error"]["message"]
        status, answer = post(mute, TEXT, GOOD[TEXT] | {"stop": "x"})
        assert (status, answer["error"]["param"]) == (422, "stop")
        assert mute.ids([1, 2], 2) == following([1, 2], 2)

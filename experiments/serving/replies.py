"""Answers in OpenAI's form: the whole one, and the chunks of a stream."""

import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from experiments.serving.errors import ApiError
from experiments.serving.metrics import Metrics
from experiments.serving.queue import Job
from experiments.serving.schema import ChatBody, CompletionBody

Json = dict[str, Any]


class Reply:
    """The answer to one body, built from the events of its job."""

    def __init__(self, body: CompletionBody | ChatBody, job: Job, metrics: Metrics) -> None:
        self._body, self._metrics, self._events = body, metrics, job.events()
        self._chat = isinstance(body, ChatBody)
        self._name = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._prompt: list[int] = []
        self._tokens = 0
        self._done = Json()  # statistics of the answer, at its end

    async def begin(self) -> None:
        """Wait until the worker has accepted the request. Raises ApiError."""
        self._prompt = (await anext(self._events))["prompt"]

    async def whole(self) -> Json:
        """The answer of a request without streaming. Raises ApiError."""
        pieces = [piece async for piece in self._pieces()]
        text = "".join(piece["text"] for piece in pieces)
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        ids = [token for piece in pieces for token in piece["ids"]]
        kind = "chat.completion" if self._chat else "text_completion"
        return self._object(kind, [self._choice(content, pieces[-1]["finish"], ids)]) | self._end()

    async def stream(self) -> AsyncIterator[Json]:
        """The `data` of each server-sent event; an error that comes now is an event too."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        try:
            if self._chat:
                begin = {"delta": {"role": "assistant", "content": ""}}
                yield _data(self._object(kind, [self._choice(begin, None, [])]) | self._so_far())
            async for piece in self._pieces():
                content = {"delta": {"content": piece["text"]}} if self._chat else {"text": piece["text"]}
                choice = self._choice(content, piece["finish"], piece["ids"])
                yield _data(self._object(kind, [choice]) | self._so_far())
            if self._body.stream_options.include_usage:
                yield _data(self._object(kind, []) | self._end())
        except ApiError as error:
            yield _data(error.content)
        yield {"data": "[DONE]"}

    async def _pieces(self) -> AsyncIterator[Mapping[str, Any]]:
        """The pieces of the answer, counted."""
        async for event in self._events:
            if "done" in event:
                self._done = event["done"]
                self._metrics.answered(self._done)
            else:
                self._tokens += len(event["ids"])
                yield event

    def _object(self, kind: str, choices: list[Json]) -> Json:
        about = {"id": self._name, "object": kind, "created": self._created, "model": self._body.model}
        return about | {"seed": self._body.seed, "choices": choices}

    def _choice(self, content: Json, finish: str | None, ids: list[int]) -> Json:
        tokens = {"token_ids": ids, "prompt_token_ids": self._prompt} if self._body.return_token_ids else {}
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish} | tokens

    def _so_far(self) -> Json:
        """Usage in a chunk before the last one."""
        options = self._body.stream_options
        if options.continuous_usage_stats:
            return {"usage": self._usage()}
        return {"usage": None} if options.include_usage else {}

    def _usage(self) -> Json:
        total = len(self._prompt) + self._tokens
        return {"prompt_tokens": len(self._prompt), "completion_tokens": self._tokens, "total_tokens": total}

    def _end(self) -> Json:
        """Usage and times of the whole answer."""
        details = {"prompt_tokens_details": {"cached_tokens": self._done["kept_tokens"]}}
        times = {name: self._done[name] for name in ("first_token_s", "seconds", "tokens_per_s")}
        return {"usage": self._usage() | details, "timings": times}


def _data(content: Json) -> Json:
    return {"data": json.dumps(content)}

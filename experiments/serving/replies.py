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
        self._body, self._job, self._metrics = body, job, metrics
        self._chat = isinstance(body, ChatBody)
        self._name = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._events = job.events()
        self._prompt: list[int] = []
        self._tokens = 0
        self._details = Json()  # of the usage; known at the end

    async def begin(self) -> None:
        """Wait until the worker has accepted the request. Raises ApiError."""
        self._prompt = (await anext(self._events))["prompt"]

    async def whole(self) -> Json:
        """The answer of a request without streaming. Raises ApiError."""
        texts, ids, finish, timings = [], list[int](), None, Json()
        async for event in self._pieces():
            if "done" in event:
                timings = self._timings(event["done"])
            else:
                texts.append(event["text"])
                ids += event["ids"]
                finish = event["finish"] or finish
        text = "".join(texts)
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = self._choice(content, finish, ids)
        return self._object("chat.completion" if self._chat else "text_completion", [choice]) | {
            "usage": self._usage(),
            "timings": timings,
        }

    async def stream(self) -> AsyncIterator[Json]:
        """The `data` of each server-sent event; an error that comes now is an event too."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        timings = Json()
        try:
            if self._chat:
                begin = {"delta": {"role": "assistant", "content": ""}}
                yield _data(self._object(kind, [self._choice(begin, None, [])]) | self._so_far())
            async for event in self._pieces():
                if "done" in event:
                    timings = {"timings": self._timings(event["done"])}
                    break
                content = {"delta": {"content": event["text"]}} if self._chat else {"text": event["text"]}
                chunk = self._object(kind, [self._choice(content, event["finish"], event["ids"])])
                yield _data(chunk | self._so_far())
            if self._body.stream_options.include_usage:
                yield _data(self._object(kind, []) | {"usage": self._usage()} | timings)
        except ApiError as error:
            yield _data(error.content)
        yield {"data": "[DONE]"}

    async def _pieces(self) -> AsyncIterator[Mapping[str, Any]]:
        """The rest of the events, counted."""
        async for event in self._events:
            if "done" in event:
                done = event["done"]
                self._details = {"prompt_tokens_details": {"cached_tokens": done["kept_tokens"]}}
                self._metrics.tokens.labels("prompt").inc(len(self._prompt))
                self._metrics.tokens.labels("kept").inc(done["kept_tokens"])
                self._metrics.tokens.labels("generated").inc(self._tokens)
                self._metrics.first.observe(done["first_token_s"])
                self._metrics.rate.set(done["tokens_per_s"])
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
        counts = {"prompt_tokens": len(self._prompt), "completion_tokens": self._tokens}
        return counts | {"total_tokens": len(self._prompt) + self._tokens} | self._details

    def _timings(self, done: Mapping[str, Any]) -> Json:
        return {name: done[name] for name in ("first_token_s", "seconds", "tokens_per_s")}


def _data(content: Json) -> Json:
    return {"data": json.dumps(content)}

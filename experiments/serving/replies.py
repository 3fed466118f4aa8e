"""Answers in OpenAI's form: the whole one, and the chunks of a stream."""

import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

from experiments.generation.request import Piece, Stats
from experiments.serving.errors import ApiError
from experiments.serving.line import Job
from experiments.serving.schema import ChatBody, CompletionBody

Json = dict[str, Any]


class Reply:
    """The answer to one body, built from the events of its job."""

    def __init__(self, body: CompletionBody | ChatBody, job: Job) -> None:
        self._body, self._job = body, job
        self._chat = isinstance(body, ChatBody)
        self._name = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._prompt: tuple[int, ...] = ()
        self._tokens = 0
        self._end = Json()  # usage and times of the whole answer, at its end

    async def begin(self) -> None:
        """Wait until the engine has accepted the request. Raises ApiError."""
        self._prompt = await anext(self._job)

    async def whole(self) -> Json:
        """The answer of a request without streaming. Raises ApiError."""
        pieces = [piece async for piece in self._pieces()]
        text = "".join(piece.text for piece in pieces)
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        ids = [token for piece in pieces for token in piece.ids]
        kind = "chat.completion" if self._chat else "text_completion"
        return self._object(kind, [self._choice(content, pieces[-1].finish, ids)]) | self._end

    async def stream(self, place: ExitStack) -> AsyncIterator[str]:
        """Server-sent events; an error that comes now is an event too. place: closed with the stream."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        with place:
            try:
                if self._chat:
                    begin = {"delta": {"role": "assistant", "content": ""}}
                    yield _event(self._object(kind, [self._choice(begin, None, [])]) | self._so_far())
                async for piece in self._pieces():
                    content = {"delta": {"content": piece.text}} if self._chat else {"text": piece.text}
                    choice = self._choice(content, piece.finish, [*piece.ids])
                    yield _event(self._object(kind, [choice]) | self._so_far())
                if self._body.stream_options.include_usage:
                    yield _event(self._object(kind, []) | self._end)
            except ApiError as error:
                yield _event(error.content)
            yield "data: [DONE]\n\n"

    async def _pieces(self) -> AsyncIterator[Piece]:
        """The pieces of the answer, counted."""
        async for event in self._job:
            if isinstance(event, Stats):
                usage = self._usage() | {"prompt_tokens_details": {"cached_tokens": event.kept_tokens}}
                times = {name: getattr(event, name) for name in ("first_token_s", "seconds", "tokens_per_s")}
                self._end = {"usage": usage, "timings": times}
            else:
                self._tokens += len(event.ids)
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


def _event(content: Json) -> str:
    return f"data: {json.dumps(content)}\n\n"

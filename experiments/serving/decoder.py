"""Answers of the engine to the bodies of requests; they are made in its own thread."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.config.resolve import check_ids
from common.config.run_config import RunConfig
from experiments.generation.engine import Engine
from experiments.generation.request import Request, Sampling
from experiments.run.setup import Setup
from experiments.run.tokenizer import encode
from experiments.serving.errors import ApiError, refused
from experiments.serving.schema import SAMPLING, ChatBody, CompletionBody
from experiments.tables.progress import Progress


class Decoder:
    """The engine of the configured stack. A request for that stack gets the configured knobs, unless it gives them.

    about: of the model and the device, for the page.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config, (self._started,) = config, config.stacks
        setup = Setup(config, Progress(sys.stderr))
        self.engine = Engine(setup, self._started)
        self.about: dict[str, Any] = {
            "model": setup.model.name,
            "device": config.device.name,
            "positions": setup.model.positions,
            "tokenizer": self.engine.tokenizer is not None,
            "chat": bool(getattr(self.engine.tokenizer, "chat_template", None)),
        }

    def answer(self, body: CompletionBody | ChatBody, variant: str, cancelled: Callable[[], bool]) -> Iterator[Any]:
        """The ids of the prompt, then each piece, then statistics. Raises ApiError for what does not fit this model."""
        with refused("knobs" if body.knobs else "model"):
            self.use(variant, body.knobs)
        if body.stop and self.engine.tokenizer is None:
            raise _unfit("there is no tokenizer for stop strings; leave stop out", "stop")
        ids = self._chat_ids(body) if isinstance(body, ChatBody) else self._prompt_ids(body)
        with refused("temperature"):  # which may be too near 0; the other fields are checked before
            sampling = Sampling(**body.model_dump(include=SAMPLING))
        request = Request(ids, self._longest(len(ids), body), sampling, self.engine.stop_ids, tuple(body.stop))
        with refused(None):
            for number, piece in enumerate(self.engine.stream(request, cancelled)):
                if number == 0:  # until then the engine may refuse it
                    yield ids
                yield piece
            yield self.engine.stats()

    def use(self, variant: str, knobs: Mapping[str, Any]) -> None:
        """Let the engine decode with this stack. Raises LabError; the old one then stays."""
        named: str | tuple[str, ...] = variant
        if variant == self._started.name:
            named, knobs = self._started.variants if "+" in variant else variant, {**self._config.knobs, **knobs}
        self.engine.use(named, knobs)

    def _chat_ids(self, body: ChatBody) -> tuple[int, ...]:
        if not self.about["chat"]:
            raise _unfit("this model has no chat template; use /v1/completions", "messages")
        with refused("messages"):
            messages = [message.plain for message in body.messages]
            return self.engine.chat_ids(messages, body.chat_template_kwargs.enable_thinking)

    def _prompt_ids(self, body: CompletionBody) -> tuple[int, ...]:
        if isinstance(body.prompt, str):
            if self.engine.tokenizer is None:
                raise _unfit("there is no tokenizer for a text; send the prompt as token ids: [1,2,3]", "prompt")
            with refused("prompt"):
                ids = encode(self.engine.tokenizer, body.prompt)
            if not ids:
                raise _unfit("the prompt has no token; give a longer one", "prompt")
            return ids
        with refused("prompt"):
            check_ids(body.prompt, self.engine.model, "prompt")
        return tuple(body.prompt)

    def _longest(self, prompt: int, body: CompletionBody | ChatBody) -> int:
        """Tokens of the longest answer; the last one is not decoded, so it needs no room. Raises ApiError."""
        positions, limit = self.engine.positions, getattr(body, body.limit)
        room = positions - prompt + 1
        if room < max(1, limit or 1):
            what, field = ("the conversation", "messages") if isinstance(body, ChatBody) else ("the prompt", "prompt")
            more = f", and {body.limit} asks for {limit} more" if limit else ""
            remedy = f"shorten {what}"
            if room > 0:
                field, remedy = body.limit, f"{remedy}, or ask for at most {room}"
            message = f"the context holds {positions} tokens: {what} has {prompt}{more}; {remedy}"
            raise ApiError(400, message, "context_length_exceeded", param=field)  # OpenAI's code
        return limit or room


def _unfit(message: str, field: str) -> ApiError:
    """The refusal of a request that does not fit this model."""
    return ApiError(422, message, "refused", param=field)

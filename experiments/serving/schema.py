"""Bodies of requests: OpenAI's fields that the lab has, and its own; any other field is refused by name."""

from secrets import randbelow
from typing import Annotated, Any, Literal

from pydantic import Field

from experiments.generation.request import LARGEST_PENALTY, SEEDS
from experiments.serving.fields import Count, Knobs, Only, Prompt, Strict, Temperature, Text, Word

FRESH = 2**32  # fresh seeds are below it, so that JavaScript can hold them


class StreamOptions(Strict):
    """include_usage: a last chunk with the usage. continuous_usage_stats: the usage so far in every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Annotated[Any, Only(False)] = None


class Unserved(Strict):
    """OpenAI's fields that the lab has not, each with the values that ask for nothing; labels may be any text."""

    audio: Annotated[Any, Only()] = None
    best_of: Annotated[Any, Only(1)] = None
    echo: Annotated[Any, Only(False)] = None
    frequency_penalty: Annotated[Any, Only(0)] = None
    function_call: Annotated[Any, Only("none", "auto")] = None
    functions: Annotated[Any, Only([])] = None
    logit_bias: Annotated[Any, Only({})] = None
    logprobs: Annotated[Any, Only(False)] = None
    metadata: Annotated[Any, Only({})] = None
    modalities: Annotated[Any, Only(["text"])] = None
    moderation: Annotated[Any, Only()] = None
    n: Annotated[Any, Only(1)] = None
    parallel_tool_calls: Annotated[Any, Only(True, False)] = None
    prediction: Annotated[Any, Only()] = None
    presence_penalty: Annotated[Any, Only(0)] = None
    prompt_cache_key: Text | None = None
    prompt_cache_options: Annotated[Any, Only()] = None
    prompt_cache_retention: Annotated[Any, Only()] = None
    reasoning_effort: Annotated[Any, Only()] = None
    response_format: Annotated[Any, Only({"type": "text"})] = None
    safety_identifier: Text | None = None
    service_tier: Annotated[Any, Only("auto", "default")] = None
    store: Annotated[Any, Only(False)] = None
    suffix: Annotated[Any, Only("")] = None
    tool_choice: Annotated[Any, Only("none", "auto")] = None
    tools: Annotated[Any, Only([])] = None
    top_logprobs: Annotated[Any, Only(0)] = None
    user: Text | None = None
    verbosity: Annotated[Any, Only()] = None
    web_search_options: Annotated[Any, Only()] = None


class Body(Unserved):
    """Fields of both kinds of completion. The lab's own: top_k, repetition_penalty, knobs, return_token_ids."""

    model: Text
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: Temperature = 0.0  # as everywhere in the lab: greedy
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, lt=2**31)
    repetition_penalty: float = Field(1.0, ge=1 / LARGEST_PENALTY, le=LARGEST_PENALTY)
    seed: int = Field(default_factory=lambda: randbelow(FRESH), ge=0, lt=SEEDS)
    stop: Word | Annotated[list[Word], Field(max_length=4)] = Field([])
    knobs: Knobs = Field({})
    return_token_ids: bool = False


class CompletionBody(Body):
    """POST /v1/completions: the prompt as a text or as token ids."""

    prompt: Prompt
    max_tokens: Count = 16


class Part(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: Text
    prompt_cache_breakpoint: Annotated[Any, Only()] = None


class Message(Strict):
    """A message of a chat; that of an assistant as an answer had it, with OpenAI's fields that were null there."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[Part], Field(min_length=1)]
    annotations: Annotated[Any, Only([])] = None
    audio: Annotated[Any, Only()] = None
    function_call: Annotated[Any, Only()] = None
    name: Annotated[Any, Only()] = None
    refusal: Annotated[Any, Only()] = None
    tool_calls: Annotated[Any, Only([])] = None

    @property
    def plain(self) -> dict[str, str]:
        """Message for the chat template."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class TemplateOptions(Strict):
    """Message of the checkpoint's chat template."""

    enable_thinking: bool = False


class ChatBody(Body):
    """POST /v1/chat/completions. Without max_tokens an answer ends by itself or where the KV cache is full."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    chat_template_kwargs: TemplateOptions = TemplateOptions()


def job_of(body: CompletionBody | ChatBody, variant: str) -> dict[str, Any]:
    """The request that the worker gets; it reads it in experiments/serving/work.py."""
    own: dict[str, Any]
    if isinstance(body, ChatBody):
        field = "max_completion_tokens" if body.max_completion_tokens else "max_tokens"
        thinking = body.chat_template_kwargs.enable_thinking
        own = {"messages": [one.plain for one in body.messages], "thinking": thinking}
    else:
        own, field = {"prompt": body.prompt}, "max_tokens"
    sampling = {
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "repetition_penalty": body.repetition_penalty,
        "seed": body.seed,
    }
    stops = [body.stop] if isinstance(body.stop, str) else body.stop
    own |= {"limit": field, "max_tokens": getattr(body, field)}
    return own | {"variant": variant, "knobs": body.knobs, "sampling": sampling, "stop": stops}


class StripBody(Strict):
    """POST /lab/strip, for the page: a step at `position`."""

    model: Text
    knobs: Knobs = Field({})
    position: int = Field(0, ge=0, lt=2**31)

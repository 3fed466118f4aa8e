"""Bodies of requests: OpenAI's fields that the lab has, and its own; any other field is refused by name.

Types are strict: true is no 1, and neither 2.5 nor "2" is an integer.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from secrets import randbelow
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from experiments.generation.request import LARGEST_PENALTY, LEAST_TOP_P, SAMPLING_SEEDS, Sampling
from experiments.serving.errors import NO_TOOLS

HOTTEST = 2  # OpenAI's limit; the lab itself goes further
NONE = -1  # users of llama.cpp, vLLM and Open WebUI send it: no limit, no seed
FRESH = 2**32  # fresh seeds are below it, so that JavaScript can hold them
SAMPLING = {field.name for field in fields(Sampling)}


class Strict(BaseModel):
    """An object without unknown fields. Null means that a field is absent, unless it is required.

    idle: {field of OpenAI's that the lab lacks: values that ask for nothing}; such a value counts as absent, too.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    idle: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        return {name: value for name, value in given.items() if name in required or not cls._asks_nothing(name, value)}

    @classmethod
    def _asks_nothing(cls, name: str, value: Any) -> bool:
        same = (value == one and isinstance(value, bool) == isinstance(one, bool) for one in cls.idle.get(name, ()))
        return value is None or any(same)


def _one(prompt: Any) -> Any:
    """The prompt of a list of one prompt."""
    if not isinstance(prompt, list) or not prompt or not all(isinstance(each, str | list) for each in prompt):
        return prompt
    if len(prompt) > 1:
        raise PydanticCustomError("prompts", "should be one prompt: a text or a list of token ids")
    return prompt[0]


def _listed(stop: str | list[str]) -> list[str]:
    return [stop] if isinstance(stop, str) else stop


def _toolless(role: Any) -> Any:
    if role in ("tool", "function"):
        raise PydanticCustomError("role", f"{NO_TOOLS}; leave its messages out")
    return role


def _none(meaning: Callable[[], int | None]) -> BeforeValidator:
    """Replace -1, which clients of other servers send for "none", by what `meaning` returns."""
    return BeforeValidator(lambda value: meaning() if type(value) is int and value == NONE else value)


def _fresh() -> int:
    return randbelow(FRESH)


TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[Annotated[int, Field(ge=1, lt=2**31)] | None, _none(lambda: None)]
Text = Annotated[str, Field(min_length=0)]  # with a limit, pydantic refuses half of a surrogate pair
Word = Annotated[Text, Field(min_length=1)]
Words = Annotated[list[Word], Field(max_length=4)]
Knobs = dict[Text, int | Text | list[int | Text]]
Prompt = Annotated[Text | Annotated[list[TokenId], Field(min_length=1)], BeforeValidator(_one)]


class StreamOptions(Strict):
    """include_usage: a last chunk with the usage. continuous_usage_stats: the usage so far in every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    idle: ClassVar = {"include_obfuscation": (False,)}


class Body(Strict):
    """Fields of both kinds of completion. The lab's own: top_k, repetition_penalty, knobs, return_token_ids."""

    idle: ClassVar = {
        **dict.fromkeys(("echo", "logprobs", "store"), (False,)),
        **dict.fromkeys(("frequency_penalty", "presence_penalty", "top_logprobs"), (0,)),
        **dict.fromkeys(("best_of", "n"), (1,)),
        **dict.fromkeys(("logit_bias", "metadata"), ({},)),
        **dict.fromkeys(("functions", "tools"), ([],)),
        **dict.fromkeys(("function_call", "tool_choice"), ("none", "auto")),
        "modalities": (["text"],),
        "parallel_tool_calls": (True, False),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "suffix": ("",),
    }
    model: Text
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: float = Field(0.0, ge=0, le=HOTTEST)  # as everywhere in the lab: greedy
    top_p: float = Field(1.0, ge=LEAST_TOP_P, le=1)
    top_k: Annotated[int, Field(ge=0, lt=2**31), _none(int)] = 0
    repetition_penalty: float = Field(1.0, ge=1 / LARGEST_PENALTY, le=LARGEST_PENALTY)
    seed: Annotated[int, Field(default_factory=_fresh, ge=0, lt=SAMPLING_SEEDS), _none(_fresh)]
    stop: Annotated[Word | Words, AfterValidator(_listed)] = Field([])
    knobs: Knobs = Field({})
    return_token_ids: bool = False
    prompt_cache_key: Text | None = None  # this and the next ones are labels, which change nothing
    safety_identifier: Text | None = None
    user: Text | None = None

    @property
    def limit(self) -> str:
        """Name of the field that limits the answer."""
        return "max_tokens"


class CompletionBody(Body):
    """POST /v1/completions: the prompt as a text or as token ids. max_tokens None: until the KV cache is full."""

    prompt: Prompt
    max_tokens: Count = 16


class Part(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """A message of a chat; an assistant's may repeat an answer of OpenAI's client, with what was empty there."""

    idle: ClassVar = {"annotations": ([],), "tool_calls": ([],)}
    role: Annotated[Literal["system", "developer", "user", "assistant"], BeforeValidator(_toolless)]
    content: Text | Annotated[list[Part], Field(min_length=1)]

    @property
    def plain(self) -> dict[str, str]:
        """Message for the chat template."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class TemplateOptions(Strict):
    """Options of the checkpoint's chat template."""

    enable_thinking: bool = False


class ChatBody(Body):
    """POST /v1/chat/completions. Without max_tokens an answer ends by itself or where the KV cache is full."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: Count = None
    max_completion_tokens: Count = None
    chat_template_kwargs: TemplateOptions = TemplateOptions()

    @property
    def limit(self) -> str:
        return "max_completion_tokens" if self.max_completion_tokens else "max_tokens"

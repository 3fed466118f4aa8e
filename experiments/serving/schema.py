"""Bodies of requests: OpenAI's fields that the lab has, and its own; any other field is refused by name."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _encodable(text: str) -> str:
    text.encode()  # half a surrogate pair, which JSON can hold, raises a ValueError
    return text


TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Text = Annotated[str, AfterValidator(_encodable)]
Word = Annotated[Text, Field(min_length=1)]
Knobs = dict[Text, int | Text | list[int | Text]]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _one(value: Any) -> Any:
    """The prompt of a list of one prompt."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list) else value


class StreamOptions(BaseModel):
    """include_usage: a last chunk with the usage. continuous_usage_stats: the usage so far in every chunk."""

    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Body(BaseModel):
    """What both kinds of completion take. The lab's own fields: top_k, repetition_penalty, knobs, return_token_ids."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: Text
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = Field(0.0, ge=0, le=2)  # 0, as everywhere in the lab: greedy
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, lt=2**31)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    seed: int = Field(0, ge=0, lt=2**63)
    stop: Annotated[Annotated[list[Word], Field(max_length=4)] | None, BeforeValidator(_listed)] = None
    knobs: Knobs = {}
    return_token_ids: bool = False
    user: Text | None = None
    # Fields that clients send with the value that asks for nothing.
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None


class CompletionBody(Body):
    """POST /v1/completions: the prompt as a text or as token ids."""

    prompt: Annotated[Text | list[TokenId], BeforeValidator(_one)]
    max_tokens: int = Field(16, ge=1, lt=2**31)
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None


class Part(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(BaseModel):
    """A message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: Text | list[Part]
    name: Text | None = None

    @property
    def plain(self) -> dict[str, str]:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text}


class TemplateOptions(BaseModel):
    """Of the checkpoint's chat template."""

    model_config = ConfigDict(extra="forbid")
    enable_thinking: bool = False


class ChatBody(Body):
    """POST /v1/chat/completions. Without max_tokens an answer ends by itself or where the KV cache is full."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31)
    chat_template_kwargs: TemplateOptions = TemplateOptions()


def job_of(body: CompletionBody | ChatBody, variant: str) -> dict[str, Any]:
    """The request that the worker gets; it reads it in experiments/serving/work.py."""
    own: dict[str, Any]
    if isinstance(body, ChatBody):
        limit = body.max_completion_tokens or body.max_tokens
        thinking = body.chat_template_kwargs.enable_thinking
        own = {"messages": [one.plain for one in body.messages], "thinking": thinking, "max_tokens": limit}
    else:
        own = {"prompt": body.prompt, "max_tokens": body.max_tokens}
    sampling = {
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "repetition_penalty": body.repetition_penalty,
        "seed": body.seed,
    }
    return own | {"variant": variant, "knobs": body.knobs, "sampling": sampling, "stop": body.stop or []}


class StripBody(BaseModel):
    """POST /lab/strip, for the page: a step at `position`."""

    model_config = ConfigDict(extra="forbid")
    model: Text
    knobs: Knobs = {}
    position: int = Field(0, ge=0, lt=2**31)

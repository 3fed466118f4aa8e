"""Types of the fields of a request, all strict: true is no 1, and neither 2.5 nor "2" is an integer."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError, core_schema

from experiments.generation.request import COLDEST

HOTTEST = 2  # of OpenAI's API; the lab itself goes further


class Strict(BaseModel):
    """An object without unknown fields. Null for a field that may be absent means that it is."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in given.items() if value is not None or name not in optional}


class Only:
    """Annotates a field that OpenAI has and the lab has not: it takes `values`, which ask for nothing."""

    def __init__(self, *values: Any) -> None:
        self._values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"enum": [None, *self._values]}

    def _check(self, value: Any) -> Any:
        if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in self._values):
            return value
        shown = " or ".join(map(json.dumps, self._values)) or "null"
        raise PydanticCustomError("only", "only {shown} is taken here; leave it out", {"shown": shown})


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can hold it
        raise PydanticCustomError("string_unicode", "half of a surrogate pair") from None
    return text


def _warm(temperature: float) -> float:
    if 0 < temperature < COLDEST:
        limits = {"low": COLDEST, "high": HOTTEST}
        raise PydanticCustomError("cold", "should be 0, for the most probable token, or {low} to {high}", limits)
    return temperature


def _one(prompt: Any) -> Any:
    """The prompt of a list of one prompt."""
    if not isinstance(prompt, list) or not prompt or not all(isinstance(each, str | list) for each in prompt):
        return prompt
    if len(prompt) > 1:
        raise PydanticCustomError("prompts", "should be one prompt: a text or a list of token ids")
    return prompt[0]


TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, AfterValidator(_encodable)]
Word = Annotated[Text, Field(min_length=1)]
Knobs = dict[Text, int | Text | list[int | Text]]
Temperature = Annotated[float, Field(ge=0, le=HOTTEST), AfterValidator(_warm)]
Prompt = Annotated[Text | Annotated[list[TokenId], Field(min_length=1)], BeforeValidator(_one)]

"""Errors of the server, each answered as OpenAI's error JSON."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from common.errors import Crashed, Hung, LabError, OutOfMemory

INVALID, SERVER = "invalid_request_error", "server_error"
LONGEST = 60  # characters of a name that is shown
NO_TOOLS = "this server has no tools"
TOOLS = {"function_call", "functions", "tool_call_id", "tool_calls", "tool_choice", "tools"}
CAUSES = {
    "extra_forbidden": "is not served here; leave it out",
    "missing": "is required",
    "model_type": "should be an object",
    "model_attributes_type": "should be an object",
    "dict_type": "should be an object",
    "string_unicode": "has half of a surrogate pair",
}


class ApiError(Exception):
    """An answer other than success. kind, code, param: fields of OpenAI's error."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        kind: str = INVALID,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.content: dict[str, Any] = {"error": {"message": message, "type": kind, "param": param, "code": code}}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.content, self.status, self.headers)


@contextmanager
def refused(field: str | None) -> Iterator[None]:
    """Answer a refusal of the lab inside, and name the field that it comes from; the loss of the device passes."""
    try:
        yield
    except (Hung, Crashed, OutOfMemory):
        raise
    except LabError as error:
        raise ApiError(422, str(error), "refused", param=field) from None


async def respond(request: object, error: Exception) -> JSONResponse:
    """The answer to a request that raised `error`."""
    if isinstance(error, RequestValidationError):
        error = _invalid(error.errors(), error.body)
    elif isinstance(error, HTTPException):
        error = ApiError(error.status_code, str(error.detail), "http", headers=error.headers)
    elif not isinstance(error, ApiError):
        error = ApiError(500, f"{type(error).__name__} in the server; its log has the traceback", "fault", SERVER)
    return error.response


HANDLERS: dict[Any, Any] = dict.fromkeys((ApiError, RequestValidationError, HTTPException, Exception), respond)


def _invalid(errors: Any, body: Any) -> ApiError:
    """The field that is wrong, by its place in the body, such as messages[3].content, and why.

    errors: pydantic's. A field that may have several types has one for each; the innermost place counts.
    """
    if errors[0]["type"] == "json_invalid":
        return ApiError(400, "the body is not JSON", "json")
    errors = sorted(errors, key=lambda error: NO_TOOLS not in _cause(error))  # before a content that is null for them
    places = [_place(error, body) for error in errors]
    place = max((place for place in places if place[: len(places[0])] == places[0]), key=len)
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{_name(part)}" for part in place).lstrip(".")
    causes = [_cause(error) for error, its in zip(errors, places, strict=True) if its == place]
    message = f"{shown}: {', or '.join(dict.fromkeys(causes))}"
    if not place:
        key = errors[0]["type"] == "string_unicode"  # which has no place
        message = f"a name {causes[0]}" if key else "the body must be a JSON object, sent as application/json"
    return ApiError(422, message, "invalid", param=shown or None)


def _place(error: Any, body: Any) -> tuple[str | int, ...]:
    """Keys and indices that lead to the value, without the attempted types that pydantic names."""
    place, value, loc = list[str | int](), body, error["loc"][1:]
    for part in loc:
        if part in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
            value = value[part]
            place.append(part)
        elif part == loc[-1] and error["type"] == "missing":
            place.append(part)
    return tuple(place)


def _cause(error: Any) -> str:
    if error["type"] == "extra_forbidden" and error["loc"][-1] in TOOLS:
        return f"{NO_TOOLS}; leave it out"
    return CAUSES.get(error["type"]) or error["msg"].removeprefix("Input ")


def _name(key: str) -> str:
    """A key, in quotes where it could be taken for the text around it."""
    return key if key.isidentifier() and len(key) <= LONGEST else json.dumps(key[:LONGEST])

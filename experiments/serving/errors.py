"""Errors of the server, each answered as OpenAI's error JSON."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from experiments.serving.invalid import explain

INVALID, SERVER = "invalid_request_error", "server_error"
FULL = "context_length_exceeded"


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


def refused(cause: str, remedy: str, param: str | None = None, code: str = "refused") -> ApiError:
    """A request that the worker refuses; a conversation without room has OpenAI's own code and status."""
    return ApiError(400 if code == FULL else 422, f"{cause}; {remedy}", code, param=param)


def failed(cause: str, remedy: str) -> ApiError:
    """A worker that ended under a request."""
    return ApiError(503, f"{cause}; {remedy}", "worker_failed", SERVER, headers={"Retry-After": "1"})


def ending() -> ApiError:
    """A request that the server cannot answer because it ends."""
    return ApiError(503, "the server ends; ask again when it is back", "server_ending", SERVER)


def busy(waiting: int, seconds: int) -> ApiError:
    """No room in the queue; seconds: until there is likely to be some."""
    message = f"{waiting} requests wait for the device already; try again in {seconds} s"
    return ApiError(429, message, "queue_full", "rate_limit_error", headers={"Retry-After": str(seconds)})


def late(seconds: float) -> ApiError:
    """A request that was not answered in time."""
    message = f"not finished within {seconds:g} s; ask for fewer tokens, or raise deadline_s of the server"
    return ApiError(504, message, "deadline", SERVER)


def install(app: FastAPI) -> None:
    """Let `app` answer every error in this form."""

    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> JSONResponse:
        return error.response

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        if error.errors()[0]["type"] == "json_invalid":
            return ApiError(400, "the body is not JSON", "json").response
        field, message = explain(error.errors(), error.body)
        return ApiError(422, message, "invalid", param=field).response

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        return ApiError(error.status_code, str(error.detail), "http", headers=error.headers).response

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> JSONResponse:
        message = f"{type(error).__name__} in the server; its log has the traceback"
        return ApiError(500, message, "fault", SERVER).response

"""Errors of the server, each answered as OpenAI's error JSON."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

INVALID, SERVER = "invalid_request_error", "server_error"


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


def refused(cause: str, remedy: str) -> ApiError:
    """A request that the engine refuses, such as a prompt without room in the KV cache."""
    return ApiError(422, f"{cause}; {remedy}", "refused")


def failed(cause: str, remedy: str) -> ApiError:
    """A worker that ended under a request."""
    return ApiError(503, f"{cause}; {remedy}", "worker_failed", SERVER, headers={"Retry-After": "1"})


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
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return ApiError(400, "the body is not JSON", "json").response
        field = next((str(part) for part in first["loc"] if part != "body"), None)
        message = f"{field}: {first['msg']}" if field else "the body must be a JSON object, sent as application/json"
        return ApiError(422, message, "invalid", param=field).response

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        return ApiError(error.status_code, str(error.detail), "http", headers=error.headers).response

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> JSONResponse:
        message = f"{type(error).__name__} in the server; its log has the traceback"
        return ApiError(500, message, "fault", SERVER).response

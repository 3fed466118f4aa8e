"""ASGI middleware in front of the application: who may ask, and how long a request may be."""

import secrets

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from experiments.serving.errors import ApiError
from experiments.serving.page import NAMES
from experiments.serving.settings import Settings, is_loopback

OPEN = {"/", "/health", *(f"/{name}" for name in NAMES)}  # no API key needed: they reveal nothing


class Limits:
    """Refuses a request from another site's page, without the key, or with a body that is too long."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check_origin(headers)
            self._check_key(headers, scope["path"])
            self._check_length(headers)
        except ApiError as error:
            return await error.response(scope, receive, send)
        return await self._app(scope, receive, send)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse cross-site requests (Origin) and DNS rebinding (Host) on loopback, where there may be no key."""
        host, origin = headers.get("host", ""), headers.get("origin")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._settings.loopback and not is_loopback(name):
            raise ApiError(403, f"Host {host!r} is not this machine", "host")
        if self._settings.loopback and origin not in (None, f"http://{host}"):
            raise ApiError(403, f"a page of {origin!r} may not ask this server", "origin")

    def _check_key(self, headers: Headers, path: str) -> None:
        key, given = self._settings.api_key, headers.get("authorization", "").removeprefix("Bearer ")
        if key and path not in OPEN and not secrets.compare_digest(given.encode(), key.encode()):
            message = "the API key is missing or wrong; send it as Authorization: Bearer KEY"
            raise ApiError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _check_length(self, headers: Headers) -> None:
        """Refuse a body before it is read. The HTTP parser has checked that its length is a number, and holds to it."""
        if "transfer-encoding" in headers:
            raise ApiError(411, "the body has no length; send it with Content-Length", "length")
        if int(headers.get("content-length", 0)) > (limit := self._settings.body_kb * 1000):
            raise ApiError(413, f"the body is longer than {limit} bytes", "too_long")

"""ASGI middleware in front of the application: who may ask, and how long a request may be."""

import asyncio
import secrets

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from experiments.serving.errors import ApiError
from experiments.serving.page import NAMES
from experiments.serving.settings import Settings, is_loopback

OPEN = {"/", "/health", *(f"/{name}" for name in NAMES)}  # without a key: they tell nothing of the model
BODY_S = 30.0  # for a client to send its body


class Limits:
    """Refuses a request from another site's page, without the key, or with a body that is too long or too slow."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check_framing(headers)
            self._check_origin(headers)
            self._check_key(headers, scope["path"])
            body = await self._body(headers, receive)
        except ApiError as error:
            if "expect" in headers:  # its body may or may not follow
                error.headers |= _CLOSE
            return await error.response(scope, receive, send)
        if body is None:
            return None
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        return await self._app(scope, replay, send)

    def _check_framing(self, headers: Headers) -> None:
        """Refuse a body with two lengths: a proxy in front may take the other one, and see another next request."""
        if "content-length" in headers and "transfer-encoding" in headers:
            message = "a body has Content-Length or Transfer-Encoding, not both"
            raise ApiError(400, message, "framing", headers=_CLOSE)

    def _check_origin(self, headers: Headers) -> None:
        """On loopback, where there may be no key, refuse requests of another site's page, sent by the user's browser.

        Such a page tells its address in Origin; or it had its own name point here, which then stands in Host.
        """
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

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """The whole body; None when the client has left. Raises ApiError beyond the limits of size and time."""
        limit, body = self._settings.body_kb * 1000, bytearray()
        if int(headers.get("content-length", 0)) > limit:  # the HTTP parser has checked that it is a number
            raise _too_long(limit)
        try:
            async with asyncio.timeout(BODY_S):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise _too_long(limit)
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {BODY_S:g} s", "slow") from None
        return None


_CLOSE = {"Connection": "close"}  # only where no body is on its way: a client that still sends would lose the answer


def _too_long(limit: int) -> ApiError:
    return ApiError(413, f"the body is longer than {limit} bytes", "too_long")

"""The HTTP application: routes of OpenAI's API, of the page, and for operators."""

import asyncio
from collections.abc import Awaitable
from contextlib import ExitStack
from typing import Any, TypeVar

from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import FileResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from experiments.serving.errors import HANDLERS, ApiError
from experiments.serving.limits import Limits
from experiments.serving.metrics import Counted, Metrics
from experiments.serving.models import ServedModels
from experiments.serving.page import FOLDER, HEADERS, NAMES
from experiments.serving.queue import Queue
from experiments.serving.replies import Reply
from experiments.serving.schema import ChatBody, CompletionBody, TraceBody, job_of
from experiments.serving.settings import Settings

T = TypeVar("T")


class _Stream(EventSourceResponse):
    """Server-sent events. place: closed however the stream ends."""

    def __init__(self, reply: Reply, place: ExitStack) -> None:
        super().__init__(reply.stream(), sep="\n")
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def make_app(queue: Queue, served: ServedModels, settings: Settings, metrics: Metrics) -> FastAPI:
    """The application in front of `queue`."""
    # Without the pages of documentation, which load scripts from elsewhere.
    app = FastAPI(title="megakernel-lab", docs_url=None, redoc_url=None, exception_handlers=HANDLERS)
    app.add_middleware(Limits, settings=settings)
    app.add_middleware(Counted, metrics=metrics)

    async def answer(request: HttpRequest, body: CompletionBody | ChatBody) -> Response:
        with ExitStack() as place:
            job = place.enter_context(queue.job(job_of(body, served.variant(body.model))))
            reply = Reply(body, job, metrics)
            await _unless_left(request, reply.begin())
            if body.stream:
                return _Stream(reply, place.pop_all())
            return JSONResponse(await _unless_left(request, reply.whole()))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [await model(name) for name in served.ids]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        served.variant(name)
        return {"id": name, "object": "model", "created": served.created, "owned_by": "megakernel-lab"}

    @app.post("/v1/completions")
    async def completions(request: HttpRequest, body: CompletionBody) -> Response:
        return await answer(request, body)

    @app.post("/v1/chat/completions")
    async def chat(request: HttpRequest, body: ChatBody) -> Response:
        return await answer(request, body)

    @app.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"}) if queue.alive else JSONResponse({"status": "starting"}, 503)

    @app.get("/metrics")
    async def metrics_() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/lab")
    async def lab() -> dict[str, Any]:
        """Settings of the page."""
        return {"model": served.model, "started": served.started, "variants": served.variants, **queue.about}

    @app.post("/lab/trace")
    async def trace(request: HttpRequest, body: TraceBody) -> Response:
        """Stages and blocks of one step, from timestamps that the kernel writes itself."""
        variant = served.variant(body.model)
        step = {"trace": True, "variant": variant, "knobs": body.knobs, "position": body.position}
        with queue.job(step) as job:
            event = await _unless_left(request, anext(job.events()))
            return JSONResponse(event["done"])

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return await file("page.html")

    @app.get("/{name}", include_in_schema=False)
    async def file(name: str) -> FileResponse:
        if name not in NAMES:
            raise ApiError(404, f"there is nothing at /{name}", "not_found")
        return FileResponse(FOLDER / name, headers=HEADERS)

    return app


async def _unless_left(request: HttpRequest, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client leaves: then raises ApiError, which nobody reads."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(499, "the client has left", "left")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""The HTTP application: routes of OpenAI's API, of the page, and for operators."""

from contextlib import ExitStack
from functools import partial
from typing import Any

from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from experiments.serving.decoder import Decoder
from experiments.serving.errors import HANDLERS, ApiError
from experiments.serving.limits import Limits
from experiments.serving.line import Line
from experiments.serving.models import ServedModels
from experiments.serving.page import FOLDER, HEADERS, NAMES
from experiments.serving.replies import Reply
from experiments.serving.schema import ChatBody, CompletionBody
from experiments.serving.settings import Settings

EVENTS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def make_app(line: Line, decoder: Decoder, served: ServedModels, settings: Settings) -> FastAPI:
    """The application, whose requests wait in `line` for `decoder`."""
    # Without a schema, and so without the pages of documentation, which load scripts from elsewhere.
    app = FastAPI(openapi_url=None, exception_handlers=HANDLERS)
    app.add_middleware(Limits, settings=settings)

    async def answer(request: HttpRequest, body: CompletionBody | ChatBody) -> Response:
        with ExitStack() as place:
            job = place.enter_context(line.job(request, partial(decoder.answer, body, served.variant(body.model))))
            reply = Reply(body, job)
            await reply.begin()
            if body.stream:
                return StreamingResponse(reply.stream(place.pop_all()), headers=EVENTS)
            return JSONResponse(await reply.whole())

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
        return JSONResponse({"status": "lost"}, 503) if line.lost else JSONResponse({"status": "ok"})

    @app.get("/lab")
    async def lab() -> dict[str, Any]:
        """Settings of the page."""
        return {"model": served.model, "started": served.started, "variants": served.variants, **decoder.about}

    @app.get("/")
    async def page() -> FileResponse:
        return await file("page.html")

    @app.get("/{name}")
    async def file(name: str) -> FileResponse:
        if name not in NAMES:
            raise ApiError(404, f"there is nothing at /{name}", "not_found")
        return FileResponse(FOLDER / name, headers=HEADERS)

    return app

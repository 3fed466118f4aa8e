"""An engine behind an address with OpenAI's API: vLLM, SGLang, TensorRT-LLM, llama.cpp, or this lab's own server."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException, HTTPResponse
from itertools import islice
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from common.errors import LabError
from experiments.engines.judged import IDS, TEXT
from experiments.engines.race import Answer, Arrived, Generate, Ran, Workload, timed

PATIENCE_S = 60.0
SHOWN = 3  # models of a server, in an error
# Where servers say their version, from the root of the address: vLLM and TensorRT-LLM, SGLang, llama.cpp.
VERSIONS = (("version", "version"), ("get_server_info", "version"), ("props", "build_info"))
REMEDY = "give options.servers the address of a server, with its /v1: [http://127.0.0.1:8000/v1]"


class BadRequest(LabError):
    """A server refuses a request for what is in it."""


def check_address(address: str) -> None:
    """Raise LabError for a text that is no address of a server."""
    try:
        parts = urlsplit(address)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        right = None
    if not right:
        raise LabError(f"options.servers: {address} is no address", REMEDY)


def served(work: Workload, address: str) -> Ran:
    """Greedy answers to the prompts, given as ids and streamed, of the only model at `address`, or of `address#model`.

    Raises LabError for an address that does not answer as OpenAI's API does, and for a model that it does not serve.
    """
    address, model = find_model(address)
    url = f"{address}/completions"

    def opened(prompt: tuple[int, ...]) -> Generate:
        body = {"model": model["id"], "prompt": prompt, "temperature": 0, "max_tokens": work.tokens, **ids}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        return lambda arrived: _answer(url, body, arrived)

    ids = {"return_token_ids": True}  # a field of some servers
    try:
        ran = timed(opened, work)
    except BadRequest:  # from a server that takes OpenAI's own only
        ids.clear()
        ran = timed(opened, work)
    validated = TEXT if any(run.answer.text is not None for run in ran.runs) else IDS
    return replace(ran, peak_bytes=None, validated=validated, version=_version(address, model))


def _answer(url: str, body: Mapping[str, Any], arrived: Arrived) -> Answer:
    """The answer to one request: its ids if the server returns them, else its text."""
    ids: list[int] = []
    text, count = "", 0
    for chunk in _events(url, body):
        before = ids or text
        count = (chunk.get("usage") or {}).get("completion_tokens", count)
        for choice in chunk.get("choices") or ():
            ids += choice.get("token_ids") or ()
            text += choice.get("text") or ""
        if not before and (ids or text):
            arrived(len(ids) or 1)
    return Answer(ids) if ids else Answer(text=text, count=count)


def _events(url: str, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Chunks of a streamed answer. Raises LabError for an error among them."""
    with _request(url, body) as response:
        try:
            for line in response:
                if line.startswith(b"data:") and b"[DONE]" not in line:
                    chunk = json.loads(line.removeprefix(b"data:"))
                    if "error" in chunk:
                        raise LabError(f"{url}: {json.dumps(chunk['error'])[:200]}", "see the server's own messages")
                    yield chunk
        except (OSError, HTTPException, ValueError) as error:
            raise LabError(f"{url} broke off its answer: {error}", "see the server's own messages") from None


def find_model(given: str) -> tuple[str, Mapping[str, Any]]:
    """The address without a name, and the server's entry of the named model, or of its only one. Raises LabError."""
    address, _, wanted = given.partition("#")
    address = address.rstrip("/")
    url = f"{address}/models"
    try:
        models = {model["id"]: model for model in _json(url)["data"]}
    except (LookupError, TypeError, ValueError):
        raise LabError(f"{url} lists no models", REMEDY) from None
    if not wanted and len(models) == 1:
        return address, next(iter(models.values()))
    if wanted not in models:
        more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
        cause = f"{address} serves {', '.join(islice(models, SHOWN)) or 'nothing'}{more}"
        raise LabError(cause + (f", not {wanted}" if wanted else ""), f"name one of its models: {address}#MODEL")
    return address, models[wanted]


def _version(address: str, model: Mapping[str, Any]) -> str:
    """Name and version of the server, as far as it says them."""
    root, name = address.removesuffix("/v1"), model.get("owned_by", "")
    for path, key in VERSIONS:
        with suppress(LabError, LookupError, TypeError, ValueError):
            return f"{name} {_json(f'{root}/{path}')[key]}".strip()
    return f"{name}, version unknown".removeprefix(", ")


def _json(url: str) -> Any:
    with _request(url) as response:
        return json.load(response)


def _request(url: str, body: Mapping[str, Any] | None = None) -> HTTPResponse:
    data = None if body is None else json.dumps(body).encode()
    try:
        return urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=PATIENCE_S)
    except HTTPError as error:
        said = " ".join(error.read(200).decode(errors="replace").split())
        kind = BadRequest if error.code in (400, 422) else LabError
        raise kind(f"{url} answers {error.code}: {said}", REMEDY) from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise LabError(f"{url} does not answer: {reason}", "start the server, or correct options.servers") from None

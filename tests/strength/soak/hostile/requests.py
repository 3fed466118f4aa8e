"""Requests to the server with one value that its schema does not allow, or allows: made from the schema itself."""

import asyncio
import copy
import json
import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from httpx import ASGITransport, AsyncClient

from common.stacks.stack import Stack
from experiments.generation.request import Piece, Stats
from experiments.serving.app import make_app
from experiments.serving.line import Answer, Job, Line
from experiments.serving.metrics import Metrics
from experiments.serving.models import ServedModels
from experiments.serving.schema import NONE, ChatBody, CompletionBody, Strict, TraceBody
from experiments.serving.settings import Settings

MODEL, UNKNOWN, GONE = "small", "magic", object()
BODIES: Mapping[str, type[Strict]] = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/lab/trace": TraceBody,
}
SCHEMAS = {path: body.model_json_schema() for path, body in BODIES.items()}
KINDS: Mapping[str, Any] = {  # a value of each kind of JSON
    "null": None,
    "boolean": True,
    "integer": 7,
    "number": 2.5,
    "string": "x",
    "array": ["x", []],
    "object": {"x": 1},
}
ERROR = {"message", "type", "param", "code"}
Schema = Mapping[str, Any]
Place = tuple[str | int, ...]
Change = tuple[Place, Any, bool]  # where, the value there, whether the schema allows it


@dataclass(frozen=True)
class HostileRequest:
    """A body with one value that was changed. place: where, as keys and indices; legal: by the schema."""

    path: str
    body: Any
    place: Place
    legal: bool

    @property
    def field(self) -> str:
        """The place as OpenAI's errors name it: messages[3].content."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")


def requests(rng: random.Random) -> Iterator[HostileRequest]:
    """Random bodies, each with one random change."""
    while True:
        path = rng.choice(sorted(BODIES))
        root = SCHEMAS[path]
        schemas = _Schemas(rng, root.get("$defs", {}))
        body = schemas.sample(root) | {"model": MODEL}
        place, value, legal = rng.choice([change for change in schemas.changes(root, body) if change[0]])
        yield HostileRequest(path, _changed(body, place, value), place, legal)


def all_changes(path: str, rng: random.Random, bodies: int) -> list[Change]:
    """Every change of so many random bodies of one path."""
    root = SCHEMAS[path]
    schemas = _Schemas(rng, root.get("$defs", {}))
    return [change for _ in range(bodies) for change in schemas.changes(root, schemas.sample(root)) if change[0]]


class _Schemas:
    """Values that JSON schemas allow, and values that they do not."""

    def __init__(self, rng: random.Random, named: Mapping[str, Schema]) -> None:
        self._rng, self._named = rng, named

    def sample(self, schema: Schema) -> Any:
        """A legal value, with every field. Lists are longer than one: a list of one prompt is that prompt."""
        schema = self._rng.choice([one for one in self._branches(schema) if one.get("type") != "null"])
        kind = schema.get("type")
        if "enum" in schema or "const" in schema:
            return self._rng.choice(schema.get("enum") or [schema["const"]])
        if kind == "object":
            fields = schema.get("properties", {"l1": schema.get("additionalProperties")})
            return {name: self.sample(own) for name, own in fields.items()}
        if kind == "array":
            return [self.sample(schema["items"]) for _ in range(self._rng.randint(2, 4))]
        if kind == "boolean":
            return self._rng.random() < 0.5
        return "ab" if kind == "string" else schema.get("maximum", schema.get("minimum", 0) + 1)

    def changes(self, schema: Schema, value: Any) -> Iterator[Change]:
        """Each place of `value`, with another value for it, and whether that one is legal there."""
        branches = self._branches(schema)
        yield from (((), other, False) for other in self._wrong(branches))
        for branch in branches:
            kind = branch.get("type")
            if isinstance(value, list) and kind == "array":
                for index, element in enumerate(value):
                    yield from self._inside(index, branch["items"], element)
                    yield (index,), None, False
            if not isinstance(value, dict) or kind != "object":
                continue
            for name, own in branch.get("properties", {}).items():
                yield from self._inside(name, own, value[name])
                optional = name not in branch.get("required", ())
                yield (name,), None, optional
                yield (name,), GONE, optional
                yield from (((name,), taken, True) for taken in own.get("enum", ()) if optional)
            if branch.get("additionalProperties") is False:
                yield (UNKNOWN,), self._rng.choice(list(KINDS.values())), False
            else:
                for name, element in value.items():
                    yield from self._inside(name, branch["additionalProperties"], element)

    def _inside(self, part: str | int, schema: Schema, value: Any) -> Iterator[Change]:
        yield from (((part, *place), other, legal) for place, other, legal in self.changes(schema, value))

    def _wrong(self, branches: list[Schema]) -> Iterator[Any]:
        """Values of another kind, and values beyond the limits; null is for whoever knows if it may be absent."""
        kinds = {branch.get("type") for branch in branches}
        kinds |= {"integer"} if "number" in kinds else set()
        taken = [json.dumps(one) for branch in branches for one in branch.get("enum", [branch.get("const")])]
        for kind, value in KINDS.items():
            if kind != "null" and kind not in kinds and json.dumps(value) not in taken:
                yield value
        for branch in branches:
            below = branch.get("minimum", 0) - 1
            yield from [below if below != NONE else below - 1] if "minimum" in branch else []
            yield from [branch["maximum"] + 1, math.nan, math.inf] if "maximum" in branch else []
            yield from [branch["exclusiveMaximum"], 10**400] if "exclusiveMaximum" in branch else []
            yield from [branch["exclusiveMinimum"]] if "exclusiveMinimum" in branch else []
            yield from [[]] if branch.get("minItems") else []
            yield from [["x"] * (branch["maxItems"] + 1)] if "maxItems" in branch else []
            yield from [""] if branch.get("minLength") else []
            yield from ["\ud800"] if branch.get("type") == "string" else []

    def _branches(self, schema: Schema) -> list[Schema]:
        """The schemas, one of which a value satisfies."""
        if "$ref" in schema:
            return self._branches(self._named[schema["$ref"].rpartition("/")[2]])
        return [own for one in schema["anyOf"] for own in self._branches(one)] if "anyOf" in schema else [schema]


class _Answering(Line):
    """A line and a decoder that take every request, so that only the server's own checks are tried."""

    about: Mapping[str, Any] = {"model": MODEL}

    @contextmanager
    def job(self, request: object, answer: Answer) -> Iterator[Job]:
        job = Job(answer, 60.0)
        for event in (*answer(lambda: False), StopAsyncIteration()):
            job.say(event)
        yield job

    def answer(self, body: object, variant: str, cancelled: object) -> tuple[Any, ...]:
        return (1,), Piece((1,), "a", "length"), Stats(1, 0, 1, 0.1, 0.1, 1.0)

    def trace(self, body: object, variant: str) -> dict[str, Any]:
        return {}


def violations(count: int, rng: random.Random) -> list[str]:
    """Ask `count` of them; one line for each that is not answered as the schema says."""
    return asyncio.run(_ask_all(count, rng))


async def _ask_all(count: int, rng: random.Random) -> list[str]:
    settings, metrics = Settings("127.0.0.1", 0, None, queue=1, deadline_s=60.0, body_kb=1000), Metrics()
    served, line = ServedModels(MODEL, Stack("baseline", (), (), {})), _Answering(settings, metrics)
    app = make_app(line, line, served, settings, metrics)  # type: ignore[arg-type]
    client, found = AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1"), list[str]()
    for request, _ in zip(requests(rng), range(count), strict=False):
        body = json.dumps(request.body)
        try:
            answer = await client.post(request.path, content=body, headers={"Content-Type": "application/json"})
            broken = violation(request, answer.status_code, answer.content)
        except Exception as error:
            broken = repr(error)
        found += [f"{request.path} {request.field}: {broken}: {body[:300]}"] if broken else []
    return found


def violation(request: HostileRequest, status: int, answer: bytes) -> str:
    """The broken part of the rule in a line, or none.

    The rule: what is legal is answered; else the status is 4xx, with OpenAI's error JSON, which names the field.
    """
    if request.legal:
        return "" if status == 200 else f"is legal, but status {status}: {answer.decode()[:200]}"
    if not 400 <= status < 500:
        return f"status {status}"
    error = json.loads(answer)["error"]
    faults = [
        (set(error) != ERROR, "not OpenAI's error"),
        (error["param"] != request.field, f"names {error['param']}"),
        (not error["message"].startswith(f"{request.field}: "), error["message"]),
        ("\n" in error["message"], "several lines"),
    ]
    return "; ".join(text for wrong, text in faults if wrong)


def _changed(body: Any, place: Place, value: Any) -> Any:
    """A copy of `body` with another value at `place`."""
    body = inner = copy.deepcopy(body)
    for part in place[:-1]:
        inner = inner[part]
    if value is GONE:
        inner.pop(place[-1], None)
    else:
        inner[place[-1]] = value
    return body

"""Prometheus metrics of one server."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters, histograms and gauges in a registry of their own; the queue fills `waiting` and `alive`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, buckets=SECONDS, registry=self.registry)
        self.requests = counter("lab_requests", "Answers by route and status", ["route", "status"])
        self.seconds = histogram("lab_request_seconds", "Time of an answer", ["route"])
        self.first = histogram("lab_first_token_seconds", "Time to the first token")
        self.tokens = counter("lab_tokens", "Of prompts, kept of these, and generated", ["kind"])
        self.rate = gauge("lab_tokens_per_second", "Rate of the last answer after its first token")
        self.left = counter("lab_left", "Answers that the client did not wait for")
        self.restarts = counter("lab_worker_restarts", "Workers that replaced one that had ended")
        self.waiting = gauge("lab_queue_waiting", "Requests that wait for the device")
        self.alive = gauge("lab_worker_up", "1 while a worker can take requests")

    def answered(self, stats: Mapping[str, Any]) -> None:
        """Count one answer. stats: `experiments.generation.request.Stats` as a dict."""
        for kind, name in (("prompt", "prompt_tokens"), ("kept", "kept_tokens"), ("generated", "tokens")):
            self.tokens.labels(kind).inc(stats[name])
        self.first.observe(stats["first_token_s"])
        self.rate.set(stats["tokens_per_s"])

    def text(self) -> bytes:
        """Answer of GET /metrics."""
        return generate_latest(self.registry)


class Counted:
    """ASGI middleware that counts every answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin, status = time.monotonic(), "none"

        async def counted(message: Message) -> None:
            nonlocal status
            status = str(message.get("status", status))
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, status).inc()
            self._metrics.seconds.labels(route).observe(time.monotonic() - begin)

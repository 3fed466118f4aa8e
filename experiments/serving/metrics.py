"""Prometheus metrics of one server."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters, histograms and gauges in a registry of their own."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter("lab_requests", "Answers by route and status", ["route", "status"], registry=own)
        self.seconds = Histogram("lab_request_seconds", "Time of an answer", ["route"], buckets=SECONDS, registry=own)
        self.first = Histogram("lab_first_token_seconds", "Time to the first token", buckets=SECONDS, registry=own)
        self.tokens = Counter("lab_tokens", "Of prompts, kept of these, and generated", ["kind"], registry=own)
        self.rate = Gauge("lab_tokens_per_second", "Rate of the last answer after its first token", registry=own)
        self.left = Counter("lab_left", "Answers that the client did not wait for", registry=own)
        self.restarts = Counter("lab_worker_restarts", "Workers that replaced one that had ended", registry=own)
        self._waiting = Gauge("lab_queue_waiting", "Requests that wait for the device", registry=own)
        self._alive = Gauge("lab_worker_up", "1 while a worker can take requests", registry=own)

    def observe(self, waiting: Callable[[], int], alive: Callable[[], bool]) -> None:
        """Read the gauges from the queue whenever the metrics are asked for."""
        self._waiting.set_function(waiting)
        self._alive.set_function(alive)

    def text(self) -> bytes:
        """Answer of GET /metrics."""
        return generate_latest(self._registry)


class Counted:
    """ASGI middleware that counts every answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin, status = time.monotonic(), "none"

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            if scope["type"] == "http":
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.requests.labels(route, status).inc()
                self._metrics.seconds.labels(route).observe(time.monotonic() - begin)

"""Prometheus metrics of one server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from experiments.generation.request import Stats

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters, histograms and gauges in a registry of their own; the line fills `waiting`."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.seconds = Histogram("lab_answer_seconds", "Time of an answer on the device", buckets=SECONDS, registry=own)
        self.first = Histogram("lab_first_token_seconds", "Time to the first token", buckets=SECONDS, registry=own)
        self.tokens = Counter("lab_tokens", "Tokens: of prompts, kept of these, generated", ["kind"], registry=own)
        self.left = Counter("lab_left", "Requests given up: the client left, or deadline_s passed", registry=own)
        self.waiting = Gauge("lab_queue_waiting", "Requests that wait for the device", registry=own)

    def answered(self, stats: Stats) -> None:
        """Count one answer."""
        for kind, count in (("prompt", stats.prompt_tokens), ("kept", stats.kept_tokens), ("generated", stats.tokens)):
            self.tokens.labels(kind).inc(count)
        self.seconds.observe(stats.seconds)
        self.first.observe(stats.first_token_s)

"""Worker process of a server: `python -m experiments.serving.worker`, with the engine of the configured stack."""

import sys
from collections.abc import Mapping
from typing import Any

from common.config.run_config import RunConfig
from common.model.shapes import Model
from common.record.json_values import from_json
from experiments.generation.engine import Engine
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.run.timeline import trace
from experiments.serving.strip import strip
from experiments.serving.work import Event, work
from experiments.tables.progress import Progress

NO_CEILING = "unknown: a CPU that emulates blocks has no read bandwidth to compare with"


class Opened:
    """The engine of the configured stack. A request for that stack gets the configured knobs, unless it gives them."""

    def __init__(self, first: Event) -> None:
        self._config: RunConfig = from_json(RunConfig, first["config"])
        (self._started,) = self._config.stacks
        setup = Setup(self._config, Progress(sys.stderr))
        ceiling = _ceiling(setup)  # before the weights, since it needs room on the GPU
        self.engine = Engine(setup, self._started)
        self._current = self._named(self._started.name, {})
        self.about = {
            "model": setup.model.name,
            "device": self._config.device.name,
            "positions": setup.model.positions,
            "vocab": setup.model.vocab,
            "tokenizer": self.engine.tokenizer is not None,
            "chat": bool(getattr(self.engine.tokenizer, "chat_template", None)),
            **_bytes(setup.model),
            **ceiling,
        }

    def use(self, variant: str, knobs: Mapping[str, Any]) -> None:
        """Give the engine another kernel if it has not got this one. Raises LabError; the old one then stays."""
        wanted = self._named(variant, knobs)
        if wanted != self._current:
            self.engine.use(*wanted)
            self._current = wanted

    def strip(self, variant: str, knobs: Mapping[str, Any], position: int) -> Event:
        """Stages and blocks of one step of a traced kernel, which has buffers of its own. Raises LabError."""
        setup = Setup(self._config, Progress(sys.stderr), trace=True)
        (stack,) = setup.choose(*self._named(variant, knobs))
        return strip(trace(LabStack(setup, stack), position))

    def _named(self, variant: str, knobs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The stack as `Setup.choose` takes it, and its knobs."""
        if variant != self._started.name:
            return variant, dict(knobs)
        return variant if "+" not in variant else self._started.variants, {**self._config.knobs, **knobs}


def _bytes(model: Model) -> dict[str, int]:
    """Bytes that one step reads: at position 0, and more for each position."""
    return {"step_bytes": model.bytes_per_token(0), "position_bytes": model.kv_bytes_per_position}


def _ceiling(setup: Setup) -> dict[str, Any]:
    """Bytes per second of the fastest way to read, or why that is not known."""
    if setup.config.device.name != "cuda":
        return {"ceiling": None, "why": NO_CEILING}
    from experiments.timing.bandwidth import read_ceiling

    setup.device  # noqa: B018  opens the GPU
    setup.show.begin("measure the read ceiling")
    return {"ceiling": read_ceiling().best, "why": ""}


if __name__ == "__main__":
    work(Opened)

"""Worker process of a server: `python -m experiments.serving.worker`, with the engine of the configured stack."""

import sys
from collections.abc import Mapping
from typing import Any

from common.config.run_config import RunConfig
from common.json_values import from_json
from experiments.generation.drafts import verifying
from experiments.generation.engine import Engine
from experiments.run.setup import Setup
from experiments.run.steps import LabStack
from experiments.run.timeline import Timeline
from experiments.serving.jobs import Event, serve_jobs
from experiments.tables.progress import Progress

NO_CEILING = "unknown: a CPU that emulates blocks has no read bandwidth to compare with"
READING = {
    "ns": "Sums over all layers. Writing timestamps takes time of its own: compare shares.",
    "ordinal": "On a CPU blocks take turns: how long each works and waits, device=cuda shows.",
}


class EngineWorker:
    """The engine of the configured stack. A request for that stack gets the configured knobs, unless it gives them."""

    def __init__(self, first: Event) -> None:
        self._config: RunConfig = from_json(RunConfig, first["config"])
        (self._started,) = self._config.stacks
        setup = Setup(self._config, Progress(sys.stderr))
        ceiling = _ceiling(setup)  # before the weights, since it needs room on the GPU
        self.engine = Engine(setup, self._started, first.get("draft"))
        self.about = {
            "model": setup.model.name,
            "device": self._config.device.name,
            "positions": setup.model.positions,
            "vocab": setup.model.vocab,
            "tokenizer": self.engine.tokenizer is not None,
            "chat": bool(getattr(self.engine.tokenizer, "chat_template", None)),
            "step_bytes": setup.model.bytes_per_token(0),
            "position_bytes": setup.model.kv_bytes_per_position,
            **ceiling,
        }

    def use(self, variant: str, knobs: Mapping[str, Any]) -> None:
        """Let the engine decode with this stack. Raises LabError; the old one then stays."""
        self.engine.use(*self._named(variant, knobs))

    def trace(self, variant: str, knobs: Mapping[str, Any], position: int) -> Event:
        """Stages and blocks of one step of a traced kernel, which has buffers of its own. Raises LabError."""
        setup = Setup(self._config, Progress(sys.stderr))
        stack = verifying(setup, setup.choose(*self._named(variant, knobs)), self.engine.draft)
        return stage_times(LabStack(setup, stack).timeline(position))

    def _named(self, variant: str, knobs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The stack as `Setup.choose` takes it, and its knobs."""
        if variant != self._started.name:
            return variant, dict(knobs)
        return variant if "+" not in variant else self._started.variants, {**self._config.knobs, **knobs}


def stage_times(timeline: Timeline) -> dict[str, Any]:
    """Work and wait of each block in each stage of a step, summed over the layers; None for a block without a part.

    Stages in the order in which they begin. Without times, work and wait are 0.
    """
    spans, stages = timeline.spans, []
    blocks = int(spans["block"].max()) + 1
    for stage, rows in sorted(spans.groupby("stage"), key=lambda group: group[1]["begin"].min()):
        work: list[int | None] = [None] * blocks
        wait: list[int | None] = [None] * blocks
        for block, own in rows.groupby("block"):
            work[block] = int((own["end"] - own["begin"]).sum()) if timeline.timed else 0
            wait[block] = int((own["passed"] - own["end"]).sum()) if timeline.timed else 0
        stages.append({"stage": stage, "work": work, "wait": wait})
    about = {"title": timeline.title, "unit": timeline.unit, "reading": READING[timeline.unit]}
    return about | {"blocks": blocks, "stages": stages}


def _ceiling(setup: Setup) -> dict[str, Any]:
    """Bytes per second of the fastest way to read, or the reason why there is none."""
    if setup.config.device.name != "cuda":
        return {"ceiling": None, "why": NO_CEILING}
    from experiments.timing.bandwidth import read_ceiling

    setup.device  # noqa: B018  opens the GPU
    setup.show.begin("measure the read ceiling")
    return {"ceiling": read_ceiling().best, "why": ""}


if __name__ == "__main__":
    serve_jobs(EngineWorker)

"""What a run without a GPU can say of time: each stack beside its parent, predicted from counts that are known."""

from dataclasses import dataclass, replace

from common.config import RunConfig, model_named
from experiments.inquiry import Inquiry
from experiments.prediction.counting import Uncounted
from experiments.progress import Progress

MODEL, GPU, POSITION = "qwen3_0_6b", "rtx3090", 1  # what most is published of


@dataclass(frozen=True)
class Forecast:
    """A predicted decode step.

    microseconds: of one token; effect: its change against the parent, -0.1 is 10 % less; None: it is its own parent.
    """

    parent: tuple[str, ...]
    microseconds: float
    effect: float | None


def forecasts(config: RunConfig, show: Progress) -> dict[str, Forecast]:
    """By the stack's name: of MODEL at POSITION on GPU. A stack without known counts is left out: it takes a minute."""
    inquiry = Inquiry(replace(config, model=model_named(MODEL)), show, may_count=False)
    gpu, found = inquiry.gpu(GPU), {}
    for stack in config.stacks:
        try:
            own, parent = (
                inquiry.predict(variants, stack.knobs, gpu, POSITION).seconds
                for variants in (stack.variants, stack.parent)
            )
        except Uncounted:
            continue
        effect = own / parent - 1 if stack.variants != stack.parent else None
        found[stack.name] = Forecast(stack.parent, 1e6 * own, effect)
    return found

"""Virtual seconds of a step on the stand-in, from the counts of the host device: known without the CUDA path."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from standin import installed

from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from experiments.prediction.predictor import Predictor
from experiments.tuning.space import Candidate

BLOCKS, THREADS = 3, 256


def virtual_seconds(folder: Path, model: Model) -> Callable[[Candidate], float]:
    """The seconds of a candidate at position 1; its counts are kept in `folder` by content."""
    predictor = Predictor(model, THREADS, Store(folder / "counts.jsonl"), folder, lambda name, blocks: None)
    with installed():
        from standin_gpu.cost import decoded

    @cache
    def seconds(candidate: Candidate) -> float:
        names = list(candidate.variants) or ["baseline"]
        (stack,) = choose_stacks(read_catalog(), "", names, candidate.values, THREADS, None)
        return decoded(predictor.count(predictor.source(stack.variants, stack.knobs), BLOCKS), BLOCKS)

    return seconds

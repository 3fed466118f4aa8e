"""Virtual seconds of a step on the stand-in, from counts of its launch: known without the CUDA path."""

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

from standin import installed

from common.model.shapes import Model
from common.record.store import Store
from common.stacks.catalog import read_catalog
from common.stacks.stack import choose_stacks
from experiments.run.counting import Counting
from experiments.tuning.space import Candidate, Space

BLOCKS, THREADS = 3, 256
UNCOUNTED = {"l1"}  # knobs that change no count: kernels that differ in them alone need not be compiled


def virtual_seconds(folder: Path, model: Model) -> Callable[[Candidate], float]:
    """The seconds of a candidate at position 1; its counts are kept in `folder` by content."""
    counting = Counting(model, THREADS, Store(folder / "counts.jsonl"), folder, lambda name, blocks: None)
    with installed():
        from standin_gpu.cost import decoded

    @cache
    def seconds(candidate: Candidate) -> float:
        names = list(candidate.variants) or ["baseline"]
        values = {knob: value for knob, value in candidate.values.items() if knob not in UNCOUNTED}
        (stack,) = choose_stacks(read_catalog(), "", names, values, THREADS)
        return decoded(counting.count(counting.source(stack.variants, stack.knobs), BLOCKS).total, BLOCKS)

    return seconds


def every_candidate(space: Space) -> list[Candidate]:
    """All candidates of a small space, by all its points."""
    names = [one.name for one in space.parameters]
    points = product(*(range(len(one.values)) for one in space.parameters))
    return [*dict.fromkeys(space.candidate(dict(zip(names, point, strict=True))) for point in points)]

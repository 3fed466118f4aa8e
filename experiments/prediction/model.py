"""Estimate of a decode step's time on a GPU that is not at hand: a simple model over exact counts.

A stage s is read in one go between two barriers; its time is

    t(s) = layers(s) * max(bytes(s) / read rate, rounds(s) * latency) + the latency before its first byte
    rounds(s) = max(depth(s), loads(s) / (blocks at work * threads * loads a thread has under way))

and a step takes the sum of all t(s), a barrier cost for each grid barrier, and its launches. What a kernel prefetches
while the memory would idle, up to the size of L2, is taken off the stages that follow. Bytes, loads, barriers and
prefetches are counted, not estimated.

It is an estimate and no bound. Too fast: it leaves out arithmetic, shuffles, block barriers, L1 and L2 misses of
activations, bank conflicts, a rate of memory that rises only slowly with the loads under way, refresh, clocks.
Too slow: latency, the cost of a barrier and the loads a thread has under way are constants from datasheets, probes and
the source, and compilers and memory systems may do better. `experiment=predict` and `experiment=ratios`
print its error against each published rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from common.compile.source import Source, launches
from common.devices.counters import Counts
from common.display.shown import Shown
from common.model.stages import DEFINITIONS, LAYER, STAGES, WARP
from common.stacks.work import DEFAULT, SHAPES, evaluate, find
from experiments.prediction.counting import POSITION
from experiments.prediction.gpus import GpuModel

DEPTH = 2  # dependent loads at least: a norm reads its vector, then the gains; attention reads a key, then a value
LOAD_BYTES = 8  # of the baseline's wide loads


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """Seconds of one step, by what they go to.

    reading   bytes at the read rate, after what prefetches took off; prefetched: what they took off
    waiting   loads that too few threads had under way, and the latency before a stage's first byte
    barriers, launches
    stages    reading and waiting of each stage, all layers together
    """

    reading: float
    waiting: float
    barriers: float
    launches: float
    prefetched: float
    stages: Mapping[str, float]

    def against(self, parent: "Prediction") -> float | None:
        """Change of the time against `parent`: -0.1 is 10 % less. None: NOT_MODELLED, no term differs between the two.

        The model then does not know what the variant changes, or knows only what the reading hides. No
        change would be a statement that it cannot make.
        """
        return None if self == parent else self.seconds / parent.seconds - 1

    @property
    def seconds(self) -> float:
        return self.reading + self.waiting + self.barriers + self.launches

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return 1 / self.seconds

    def columns(self) -> dict[str, float]:
        names = ("reading", "waiting", "barriers", "launches", "prefetched")
        parts = {f"{name} us": 1e6 * getattr(self, name) for name in names}
        return parts | {"predicted us": 1e6 * self.seconds, "predicted tok/s": self.rate}


def predict(source: Source, counts: Counts, gpu: GpuModel, position: int, blocks: int) -> Prediction:
    """One step of `source` at `position` on a grid of `blocks`; `counts` are those at position 1."""
    model, reading, waiting, saved, credit = source.model, 0.0, 0.0, 0.0, 0.0
    stages = {}
    for stage in STAGES:
        layers = model.layers if stage in LAYER else 1
        size = stage_bytes(source, counts, stage, position) / layers
        hidden = min(credit, size) if DEFINITIONS[stage].columns else 0.0
        credit -= hidden
        read = (size - hidden) / gpu.read_rate
        wait = max(0.0, (_rounds(source, counts, stage, position, blocks) * gpu.latency_ns / 1e9) - read)
        wait += gpu.latency_ns / 1e9 if size > hidden else 0.0
        # Until the next stage begins, memory is free for what this stage prefetches, beside what it reads itself.
        free = (wait if DEFINITIONS[stage].cached else 0.0) + (
            gpu.barrier_us / 1e6 if counts.of(stage, "grid_barriers") else 0
        )
        credit += min(counts.of(stage, "prefetched") / layers, gpu.read_rate * free, gpu.l2_bytes)
        reading, waiting = reading + layers * read, waiting + layers * wait
        saved += layers * hidden / gpu.read_rate
        stages[stage] = layers * (read + wait)
    return Prediction(
        reading=reading,
        waiting=waiting,
        barriers=grid_barriers(source, counts, position) * gpu.barrier_us / 1e6,
        launches=_launching(source, gpu),
        prefetched=saved,
        stages=stages,
    )


def grid_barriers(source: Source, counts: Counts, position: int) -> int:
    """Of one step at `position`: those counted, and those that variants add at later positions."""
    extra = (
        (source.model.layers if stage in LAYER else 1) * _quantity(source, "extra_barriers", stage, position, 0)
        for stage in STAGES
    )
    return counts.total("grid_barriers") + sum(extra)


def stage_bytes(source: Source, counts: Counts, stage: str, position: int) -> float:
    """Bytes that a stage must get out of memory over all layers, each once however many blocks read them."""
    weights = counts.of(stage, "copied_async") + sum(counts.bytes_by_width("weights", stage).values())
    if DEFINITIONS[stage].norm:  # however many blocks normalize, the gains come from memory once
        return 2 * source.model.hidden * (source.model.layers if stage in LAYER else 1)
    if DEFINITIONS[stage].cached:
        return weights + source.model.kv_bytes_per_position * (position + 1)
    return weights


def _rounds(source: Source, counts: Counts, stage: str, position: int, blocks: int) -> int:
    """Loads of one layer that follow each other in the busiest thread. Each block that normalizes does it alone."""
    of, layers = DEFINITIONS[stage], source.model.layers if stage in LAYER else 1
    if of.norm:
        return DEPTH
    width = _quantity(source, "load_bytes", stage, position, LOAD_BYTES)
    loads = sum(size / (bits / 8) for bits, size in counts.bytes_by_width("weights", stage).items())
    loads += counts.of(stage, "copied_async") / width
    cached = sum(size / (bits / 8) for bits, size in counts.bytes_by_width("kv", stage).items())
    loads += cached * (position + 1) / (POSITION + 1)
    if not loads:
        return 0
    busy = of.blocks(source.model, source.threads) if of.blocks else blocks
    busy = min(blocks, _quantity(source, "blocks_at_work", stage, position, busy))
    threads = busy * _quantity(source, "loading_threads", stage, position, source.threads)
    flying = 1  # one of the cache; of weights, those of the rows that a warp reads at once
    if of.columns:
        rows = _quantity(source, "rows_in_flight", stage, position, 1)
        flying = rows * ceil(2 * of.columns(source.model) / (WARP * width))
    flying = _quantity(source, "loads_in_flight", stage, position, flying)
    return max(DEPTH if of.cached else 0, ceil(loads / layers / (threads * flying) - 1e-9))


def _quantity(source: Source, name: str, stage: str, position: int, default: int) -> int:
    """`default`, as the variants of the stack change it one after another; see `common.stacks.work`."""
    shape = {field: getattr(source.model, field) for field in SHAPES}
    for variant, work in source.work.items():
        expression = find(work.get(name, {}), stage)
        if expression is not None:
            known = {"threads": source.threads, "position": position, DEFAULT: default}
            default = evaluate(expression, {**shape, **source.knobs[variant], **known})
    return default


def _launching(source: Source, gpu: GpuModel) -> float:
    """Seconds of launches of one step; those of a queue overlap on a GPU, so this is an upper bound for one kernel."""
    if source.launch == "graph":
        return len(launches(source)) * gpu.node_us / 1e6
    if source.launch == "launches":
        return len(launches(source)) * gpu.launch_us / 1e6
    return gpu.launch_us / 1e6 / source.tokens_per_launch

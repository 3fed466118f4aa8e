"""How long a decode step should take on a GPU that nobody has at hand: a simple model over exact counts.

A stage s is read in one go between two barriers; its time is

    t(s) = layers(s) * max(bytes(s) / read rate, rounds(s) * latency) + the latency before its first byte
    rounds(s) = max(depth(s), loads(s) / (blocks at work * threads * loads a thread has under way))

and a step takes the sum of all t(s), a barrier cost for each grid barrier, and its launches. What a kernel prefetches
while the memory would idle, up to the size of L2, is taken off the stages that follow. Bytes, loads, barriers and
prefetches are counted, not estimated. Left out: arithmetic, shuffles, block barriers, L1 and L2 misses of activations,
bank conflicts, a rate of memory that rises only slowly with the loads under way, refresh, clocks. So this is a bound
from below, and a kernel that is far slower loses its time to something the model does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from common.counters import Counts
from common.model import LAYER_STAGES, STAGES, Model
from common.source import Source, launches
from experiments.prediction.counting import POSITION
from experiments.prediction.gpus import GpuModel

NORMS = ("input_norm", "post_norm", "final_norm")
MATRICES = ("qkv", "o_proj", "gate_up", "down", "lm_head")
# Dependent loads at least: a norm reads its vector, then the gains; attention reads a key, then a value.
DEPTH = dict.fromkeys((*NORMS, "attention"), 2)
WARP = 32
SLOT_PACKETS = 4  # of one tile of warp_split: what a producer's lane has under way


@dataclass(frozen=True)
class Prediction:
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

    @property
    def seconds(self) -> float:
        return self.reading + self.waiting + self.barriers + self.launches

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return 1 / self.seconds


def predict(source: Source, counts: Counts, gpu: GpuModel, position: int, blocks: int) -> Prediction:
    """One step of `source` at `position` on a grid of `blocks`; `counts` are those at position 1."""
    model, reading, waiting, saved, credit = source.model, 0.0, 0.0, 0.0, 0.0
    stages = {}
    for stage in STAGES:
        layers = model.layers if stage in LAYER_STAGES else 1
        size = stage_bytes(source, counts, stage, position) / layers
        hidden = min(credit, size) if stage in MATRICES else 0.0
        credit -= hidden
        read = (size - hidden) / gpu.read_rate
        wait = max(0.0, (_rounds(source, counts, stage, position, blocks) * gpu.latency_ns / 1e9) - read)
        wait += gpu.latency_ns / 1e9 if size > hidden else 0.0
        # Until the next stage begins, memory is free for what this stage prefetches, beside what it reads itself.
        free = (wait if stage == "attention" else 0.0) + (
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
    """Of one step at `position`: those counted, and one per layer where attention merges several chunks."""
    return counts.total("grid_barriers") + (source.model.layers if _chunks(source, position) > 1 else 0)


def stage_bytes(source: Source, counts: Counts, stage: str, position: int) -> float:
    """Bytes that a stage must get out of memory over all layers, each once however many blocks read them."""
    weights = counts.of(stage, "copied_async") + sum(counts.bytes_by_width("weights", stage).values())
    if stage in NORMS:  # however many blocks norm, the gains come from memory once
        return 2 * source.model.hidden * (source.model.layers if stage in LAYER_STAGES else 1)
    if stage == "attention":
        return weights + source.model.kv_bytes_per_position * (position + 1)
    return weights


def _rounds(source: Source, counts: Counts, stage: str, position: int, blocks: int) -> int:
    """Loads of one layer that follow each other in the busiest thread. Each block that norms does it alone."""
    if stage in NORMS:
        return DEPTH[stage]
    layers = source.model.layers if stage in LAYER_STAGES else 1
    loads = sum(size / (width / 8) for width, size in counts.bytes_by_width("weights", stage).items())
    loads += counts.of(stage, "copied_async") / (16 if "vec128" in source.stack else 8)
    cached = sum(size / (width / 8) for width, size in counts.bytes_by_width("kv", stage).items())
    loads += cached * (position + 1) / (POSITION + 1)
    if not loads:
        return 0
    threads = _working(source, stage, position, blocks) * _loading_threads(source, stage)
    return max(DEPTH.get(stage, 0), ceil(loads / layers / (threads * _under_way(source, stage)) - 1e-9))


def _working(source: Source, stage: str, position: int, blocks: int) -> int:
    """Blocks that have something to do in a stage; see the stage's code."""
    model = source.model
    if stage in ("embed", "argmax"):
        return 1
    if "head_split" in source.stack and stage in ("qkv", "qk_norm_rope", "attention"):
        return min(blocks, model.kv_heads)
    if stage == "attention":
        return min(blocks, model.heads * _chunks(source, position))
    if stage == "qk_norm_rope":
        return min(blocks, ceil((model.heads + 2 * model.kv_heads) * WARP / source.threads))
    return blocks


def _chunks(source: Source, position: int) -> int:
    chunk = source.knobs["split_kv"]["chunk"] if "split_kv" in source.stack else None
    return position // chunk + 1 if chunk else 1


def _loading_threads(source: Source, stage: str) -> int:
    """Threads of a block that load: all of them, or the producers."""
    if stage in MATRICES and "warp_split" in source.stack:
        return WARP * source.knobs["warp_split"]["producers"] or source.threads
    return source.threads


def _under_way(source: Source, stage: str) -> int:
    """Loads that one thread has under way before it needs the first: those of a row of weights, or one of the cache."""
    if stage not in MATRICES:
        return 1
    if "cp_async" in source.stack:
        return source.knobs["cp_async"]["stages"] * source.knobs["cp_async"]["tile"]
    if "warp_split" in source.stack and source.knobs["warp_split"]["producers"]:
        return SLOT_PACKETS
    width = 16 if "vec128" in source.stack else 8
    row = ceil(2 * _columns(source.model, stage) / (WARP * width))
    rows = (
        int(source.knobs["fused_head"]["rows_per_warp"]) if stage == "lm_head" and "fused_head" in source.stack else 1
    )
    return row * rows


def _columns(model: Model, stage: str) -> int:
    return {"o_proj": model.query, "down": model.intermediate}.get(stage, model.hidden)


def _launching(source: Source, gpu: GpuModel) -> float:
    """Seconds of launches of one step; those of a queue overlap on a GPU, so this is an upper bound for one kernel."""
    if source.launch == "graph":
        return len(launches(source)) * gpu.node_us / 1e6
    if source.launch == "launches":
        return len(launches(source)) * gpu.launch_us / 1e6
    return gpu.launch_us / 1e6 / source.tokens_per_launch

"""Model of a decode step: from counts, SASS, a variant's yaml and a GPU's constants to the stages of a simulation.

A stage of the kernel is a task of the busiest SM (experiments/prediction/simulation.py). Bytes, barriers and prefetches
are counted on the host device; instructions for each KB of weights, bytes through L1 and loads under way are read from
SASS; what waits for what in a stage is declared in the yaml of each variant (`work`); latencies and rates are those of
conf/gpu/, with their ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from common.compile.source import Source
from common.devices.counters import Counts
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import DEFINITIONS, FIRST, LAST, LAYER, STAGES, WARP
from experiments.prediction.declared import Work, quantity
from experiments.prediction.gpus import GpuModel
from experiments.prediction.loops import Loop
from experiments.prediction.simulation import simulate
from experiments.prediction.task import Memory, Task, Times

KEPT_SHARE = 0.5  # of L2, that can keep lines from one step to the next; assumption: it has lines of its far half twice


@dataclass(frozen=True)
class Kernel:
    """A counted kernel: its source, counts of one step at position 1 on a grid of `counted_on`, its loops.

    steps: of a design, planned on top of the stack.
    """

    source: Source
    counts: Counts
    counted_on: int
    loops: Mapping[str, Loop]
    steps: Mapping[str, Work] = field(default_factory=dict)
    declared: dict[tuple[str, str, int, float], int] = field(default_factory=dict, repr=False)  # quantities, once each


def step_times(kernel: Kernel, gpu: GpuModel, position: int) -> Times:
    """ns of one step of `kernel` at `position`, without its launch."""
    stages = [Stage(kernel, gpu, position, stage).task() for stage in STAGES]
    first, layer, last = stages[: len(FIRST)], stages[len(FIRST) : -len(LAST)], stages[-len(LAST) :]
    steps = 2 if any(task.ahead for task in stages) else 1  # a loader that runs ahead has begun in the step before
    return simulate(first, layer, last, kernel.source.model.layers, memory_of(gpu), steps)


def memory_of(gpu: GpuModel) -> Memory:
    return Memory(
        rate=gpu.read_rate / 1e9,
        latency=gpu.latency_ns,
        l2_latency=gpu.l2_ns,
        l2_bytes=gpu.l2_bytes,
        port=gpu.port_bytes * gpu.clock_ghz,
        queue_share=gpu.queue_share,
    )


def grid_barriers(source: Source, counts: Counts, position: int) -> int:
    """Counts of one step at `position`: those counted, and those that variants add at later positions."""
    extra = (
        (source.model.layers if stage in LAYER else 1) * quantity(source, "extra_barriers", stage, position, 0)
        for stage in STAGES
    )
    return counts.total("grid_barriers") + sum(extra)


def weight_bytes(counts: Counts, stage: str) -> int:
    """Bytes of weights that a stage takes from memory, by loads or by copies; what attention copies is of the cache."""
    copied = 0 if DEFINITIONS[stage].cached else counts.of(stage, "copied_async") + counts.of(stage, "copied_bulk")
    return copied + sum(counts.bytes_by_width("weights", stage).values())


def stage_bytes(source: Source, counts: Counts, stage: str, position: int) -> float:
    """Bytes that a stage must get out of memory over all layers, each once however many blocks read them."""
    of, layers = DEFINITIONS[stage], source.model.layers if stage in LAYER else 1
    if of.norm:  # however many blocks normalize, the gains come from memory once
        return 2 * source.model.hidden * layers
    return weight_bytes(counts, stage) + (source.model.kv_bytes_per_position * (position + 1) if of.cached else 0)


@dataclass(frozen=True)
class Stage:
    """One stage of a kernel on a GPU; all times in ns, all bytes and barriers of one layer."""

    kernel: Kernel
    gpu: GpuModel
    position: int
    name: str

    def declared(self, name: str, default: float) -> int:
        """The quantity `name` of the stage."""
        key = (name, self.name, self.position, default)
        if key not in self.kernel.declared:
            source, steps = self.kernel.source, self.kernel.steps
            self.kernel.declared[key] = quantity(source, name, self.name, self.position, round(default), steps)
        return self.kernel.declared[key]

    @property
    def model(self) -> Model:
        return self.kernel.source.model

    @property
    def layers(self) -> int:
        return self.model.layers if self.name in LAYER else 1

    def counted(self, field: str) -> float:
        return self.kernel.counts.of(self.name, field) / self.layers

    @property
    def loop(self) -> Loop:
        """Its loop over weights or the cache. Raises LabError where the SASS has none that is recognized."""
        if self.name not in self.kernel.loops:
            cause = f"no loop in the SASS of {self.kernel.source.name} loads what {self.name} needs"
            raise LabError(cause, "it cannot be predicted; see experiments/prediction/loops.py for what is recognized")
        return self.kernel.loops[self.name]

    @property
    def resident(self) -> int:
        """Blocks on an SM."""
        return self.kernel.source.blocks_per_sm

    @property
    def at_work(self) -> int:
        """Blocks that have something to do on a grid that is large enough."""
        of = DEFINITIONS[self.name].blocks
        busy = of(self.model, self.kernel.source.threads) if of else self.gpu.multiprocessors * self.resident
        return self.declared("blocks_at_work", busy)

    @property
    def workers(self) -> int:
        """SMs that have work."""
        return max(1, min(self.gpu.multiprocessors, self.at_work))

    def task(self) -> Task:
        """The stage as a task of the busiest SM."""
        of, ring = DEFINITIONS[self.name], self.declared("ring_bytes", 0)
        read = self._weights() if of.columns else self._cache() if of.cached and ring else {}
        chain = self.declared("chain", 0) * self._chained()
        attention = self._attention() if of.cached and not ring else 0.0
        return Task(
            self.name,
            before=self._trips("memory_trips", "l2_trips") + chain + self._block_barriers() + attention,
            prefetch=self.declared("prefetched_bytes", self.counted("prefetched")),
            early=bool(self.declared("prefetch_while_idle", 0)),
            exchange=self._exchange(),
            **read,
        )

    def _weights(self) -> dict[str, Any]:
        """The matrix of the stage, and what multiplies it."""
        counts, source = self.kernel.counts, self.kernel.source
        read = weight_bytes(counts, self.name)
        if not read:
            return {}
        total = read / self.layers
        tap = DEFINITIONS[self.name].tap
        rows = tap(self.model)[0] if tap else 1
        row = total / rows
        together = self.declared("rows_together", self.resident * source.threads // WARP)
        size = min(rows, ceil(rows / (self.workers * together)) * together) * row
        tail = self.declared("row_chain", 0) * self._chained()
        if self.declared("ring_bytes", 0):  # whoever declares it says what multiplies out of it, too
            loads, rate = self._ring(), self._rate(0.0, 0.0)
        else:
            loop = self.loop
            width = self.declared("load_bytes", loop.width)
            conflicts = max(1, width // 8)  # lanes read fp32 vectors in steps of twice what they load of weights
            loads = self._registers(loop, width, row, tail)
            rate = self._rate(loop.instructions, loop.through_l1 * conflicts)
        return loads | {
            "size": size,
            "total": max(total, size),
            "rate": rate,
            "head": self._trips("input_trips"),
            "tail": tail,
            "fetched": total * min(1.0, self.declared("prefetched", 0) / DEFINITIONS[self.name].matrices),
            "kept": self._kept(),
        }

    def _kept(self) -> float:
        """Bytes that L2 has from the step before: those that it is asked to keep, as far as those of all stages fit."""
        asked = self.kernel.counts.total("kept")
        return self.counted("kept") * min(1.0, KEPT_SHARE * self.gpu.l2_bytes / asked) if asked else 0.0

    def _registers(self, loop: Loop, width: int, row: float, tail: float) -> dict[str, Any]:
        """Loads that hold registers: each warp waits for those that it has under way, then sends the next."""
        warps = self.resident * self.declared("loading_threads", self.kernel.source.threads) // WARP
        flight, requests = WARP * width * self.declared("loads_in_flight", loop.loads), self.declared("requests", 1)
        tile = flight / requests
        return {"tile": tile, "place": flight * warps, "lag": 0.0 if requests > 1 else tail * min(1.0, tile / row)}

    def _attention(self) -> float:
        """Turns of the loop over positions in the busiest block; no faster than memory gives the cache."""
        loop = self.loop
        width = self.declared("load_bytes", loop.width)
        warps = self.kernel.source.threads // WARP
        turn = warps * positions_of_a_warp(self.model.head_dim, width)
        attended = self.declared("attended", self.position + 1)
        tasks = ceil(self.declared("tasks", self.model.heads) / self.workers)
        turns = tasks * ceil(attended / turn)
        took = turns * (loop.phases * self.gpu.latency_ns + self.declared("turn_chain", 0) * self._chained())
        port = self.workers * self.gpu.port_bytes * self.gpu.clock_ghz
        return max(took, self._cached_bytes() / min(port, self.gpu.read_rate / 1e9))

    def _cached_bytes(self) -> float:
        return self.model.kv_bytes_per_position / self.model.layers * (self.position + 1)

    def _cache(self) -> dict[str, Any]:
        """Keys and values that come through the ring; several blocks may copy the same, which memory sends once."""
        total = self._cached_bytes()
        size = total * self.declared("copied_by", 1) / self.workers
        return self._ring() | {"size": size, "total": max(total, size), "rate": self._rate(0.0, 0.0)}

    def _ring(self) -> dict[str, Any]:
        ring = self.declared("ring_bytes", 0)
        return {
            "tile": self.declared("tile_bytes", ring),
            "place": ring,
            "window": self.declared("window_bytes", ring),
            "ahead": bool(self.declared("ahead", 0)),
        }

    def _rate(self, instructions: float, through_l1: float) -> float:
        """Bytes a ns that the SM multiplies; the arguments are of a KB."""
        gpu = self.gpu
        issuing = self.declared("instructions_per_kb", instructions) / gpu.issue
        reading = self.declared("l1_bytes_per_kb", through_l1) / gpu.l1_bytes
        return 1024 / max(issuing, reading) * gpu.clock_ghz

    def _exchange(self) -> float:
        """From the last block's publication to the next stage, without what waits in memory's queue."""
        gpu, source = self.gpu, self.kernel.source
        if source.by_stage:
            last = self.name == STAGES[-1]
            return 0.0 if last else 1000 * (gpu.node_us if source.launch == "graph" else gpu.launch_us)
        if exchanges := self.declared("by_value", 0):
            return exchanges * gpu.exchange_ns
        counted = self.declared("grid_barriers", self.counted("grid_barriers")) + self.declared("extra_barriers", 0)
        return counted * (1000 * gpu.barrier_us + gpu.l2_ns)  # its release waits for what the block has stored

    def _block_barriers(self) -> float:
        """Block barriers of the stage itself: a grid barrier has two in each block, which its own time includes."""
        grid = self.kernel.counted_on
        own = self.counted("block_barriers") - 2 * grid * self.counted("grid_barriers")
        each = self.declared("block_barriers", ceil(max(0.0, own) / min(grid, self.at_work)))
        return each * self.gpu.block_barrier_clocks / self.gpu.clock_ghz

    def _trips(self, *names: str) -> float:
        """Loads that wait for each other."""
        latency = {"memory_trips": self.gpu.latency_ns}
        return sum(self.declared(name, 0) * latency.get(name, self.gpu.l2_ns) for name in names)

    def _chained(self) -> float:
        """ns of an instruction in a chain."""
        return self.gpu.chain_clocks / self.gpu.clock_ghz


def positions_of_a_warp(head_dim: int, load_bytes: int) -> int:
    """Positions that a warp attends to at once: as many groups of lanes as it takes to load one, in common/kernel."""
    packets = head_dim * 2 // load_bytes
    group = 1
    while group < min(packets, WARP):
        group *= 2
    return WARP // group

"""Model of a decode step: from counts, SASS, a variant's yaml and a GPU's constants to the stages of a simulation.

A stage of the kernel is a task of the busiest SM (experiments/prediction/simulation.py). Bytes, barriers and prefetches
are counted on the PTX device; dependent chains inside a block, their clocks, and the loads in flight together are
walked in SASS (experiments/prediction/sass/); the ring, and exchanges between blocks, are declared in the yaml of each
variant (`work`); latencies and rates come from conf/gpu/, with their ranges.
"""

from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

from common.compile.source import Source
from common.devices.counters import Counts
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import DEFINITIONS, FIRST, LAST, LAYER, STAGES, WARP
from experiments.prediction.declared import quantity
from experiments.prediction.gpus import GpuModel
from experiments.prediction.sass.chain import Chain, Chains, Clocks
from experiments.prediction.simulation import simulate
from experiments.prediction.task import Memory, Task, Times

KEPT_SHARE = 0.5  # of L2, that can keep lines from one step to the next; assumption: it has lines of its far half twice
ISSUED = 4  # instructions a clock of an SM: one of each scheduler (CUDA programming guide, all of sm_75 to sm_120)
NONE = Chain({}, 0, {}, {}, {}, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Kernel:
    """A counted kernel: its source, counts of one step at position 1, the chains of its stages."""

    source: Source
    counts: Counts
    chains: Chains
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
    """Grid barriers of one step at `position`: counted ones, and those added by variants at later positions."""
    extra = (
        (source.model.layers if stage in LAYER else 1) * quantity(source, "extra_barriers", stage, position, 0)
        for stage in STAGES
    )
    return counts.total("grid_barriers") + sum(extra)


def weight_bytes(counts: Counts, stage: str) -> int:
    """Bytes of weights that a stage takes from memory, by loads or by copies; attention's copies are of the cache."""
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
            self.kernel.declared[key] = quantity(self.kernel.source, name, self.name, self.position, round(default))
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
    def chain(self) -> Chain:
        return self.kernel.chains.stages.get(self.name, NONE)

    @property
    def workers(self) -> int:
        """SMs that have work, of a stage in which not all have."""
        of, source = DEFINITIONS[self.name].blocks, self.kernel.source
        busy = of(self.model, source.threads) if of else self.gpu.multiprocessors * source.blocks_per_sm
        return max(1, min(self.gpu.multiprocessors, self.declared("blocks_at_work", busy)))

    def task(self) -> Task:
        """The stage as a task of the busiest SM."""
        of, ring, before = DEFINITIONS[self.name], self.declared("ring_bytes", 0), self._ns(self.chain.before)
        read: dict[str, Any] = {}
        if ring and (of.cached or of.columns):
            read = self._ring(ring)
        elif of.cached:  # no faster than memory gives the cache
            port = self.workers * self.gpu.port_bytes * self.gpu.clock_ghz
            before = max(before, self._cached_bytes() / min(port, self.gpu.read_rate / 1e9))
        elif of.columns and self._matrix_bytes():
            read = self._registers()
        return Task(
            self.name,
            before=before,
            prefetch=self._by_loader(self.name) / self.layers or self.counted("prefetched"),
            early=bool(self.declared("prefetch_while_idle", 0)),
            by_loader=bool(self.declared("loader_prefetches", 0)),
            exchange=self._exchange(),
            **read,
        )

    def _ring(self, ring: int) -> dict[str, Any]:
        """Weights or keys and values that come through a ring in shared memory, multiplied tile by tile.

        Rows of a block are neighbours, as many as any other's or one more. Several blocks may copy the same part of the
        cache, which memory sends once.
        """
        chain, of = self.chain, DEFINITIONS[self.name]
        total = self._cached_bytes() if of.cached else self._matrix_bytes()
        rows = of.tap(self.model)[0] if of.tap else 1
        share = self.declared("copied_by", 1) / self.workers if of.cached else ceil(rows / self.workers) / rows
        turns = chain.turns * max(self._ns(chain.turn), self._throughput() * self._warps)
        return self._read(total * share, total) | {
            "rate": total * share / turns if turns else inf,
            "tail": self._ns(chain.after),
            "tile": self.declared("tile_bytes", ring),
            "place": ring,
            "window": self.declared("window_bytes", ring),
            "ahead": bool(self.declared("ahead", 0)),
        }

    def _registers(self) -> dict[str, Any]:
        """Loads into registers: each warp waits for its loads in flight, then issues the next.

        Raises LabError where the walk has met no load of the matrix.
        """
        chain, each = self.chain, self._throughput()
        if not chain.loaded:
            cause = f"no instruction of {self.kernel.source.name} that is walked loads what {self.name} needs"
            raise LabError(cause, "it cannot be predicted; see experiments/prediction/sass/walk.py for what is walked")
        tile, lag = WARP * chain.loaded / chain.turns, max(0.0, self._ns(chain.turn) - each)
        return self._read(WARP * chain.loaded * self._warps, self._matrix_bytes()) | {
            "rate": tile / each if each else inf,
            "lag": lag,
            "tail": lag + self._ns(chain.after),
            "tile": tile,
            "place": WARP * chain.flight * self._warps,
        }

    def _read(self, size: float, total: float) -> dict[str, Any]:
        """Bytes that a stage reads, and possible L2 hits among them: prefetched, or kept from the step before."""
        marked, matrices, room = self.kernel.counts.total("kept"), DEFINITIONS[self.name].matrices, self._room
        fits = min(1.0, room / marked) if marked else 0.0
        by_loader = sum(map(self._by_loader, LAYER)) if self.name in LAST else 0.0
        by_loader = min(by_loader, max(0.0, room - marked))
        return {
            "size": size,
            "total": max(total, size),
            "head": self._ns(self.chain.first),
            "fetched": by_loader or total * min(1.0, self.declared("prefetched", 0) / matrices),
            "evenly": by_loader > 0,
            "kept": self.counted("kept") * fits,
        }

    @property
    def _room(self) -> float:
        """Bytes of L2 that outlive other loads, for lines that a stage reads long after they were asked for."""
        return KEPT_SHARE * self.gpu.l2_bytes

    def _by_loader(self, stage: str) -> float:
        """Bytes of lm_head that the loaders of all blocks prefetch after the copies of `stage`, in all layers."""
        blocks = self.gpu.multiprocessors * self.kernel.source.blocks_per_sm
        return blocks * replace(self, name=stage).declared("loader_prefetches", 0)

    @property
    def _warps(self) -> int:
        """Warps of an SM that load, or multiply tiles of the ring."""
        source = self.kernel.source
        return source.blocks_per_sm * self.declared("loading_threads", source.threads) // WARP

    def _throughput(self) -> float:
        """ns that a turn of one warp takes of the SM's schedulers, or of its L1 and shared memory."""
        clocks = max(self.chain.issued / ISSUED, WARP * self.chain.l1_bytes / self.gpu.l1_bytes)
        return clocks / self.gpu.clock_ghz

    def _matrix_bytes(self) -> float:
        return weight_bytes(self.kernel.counts, self.name) / self.layers

    def _cached_bytes(self) -> float:
        return self.model.kv_bytes_per_position / self.model.layers * (self.position + 1)

    def _exchange(self) -> float:
        """ns from the last block's publication to the next stage, without the wait in memory's queue."""
        gpu, source = self.gpu, self.kernel.source
        if source.by_stage:
            last = self.name == STAGES[-1]
            return 0.0 if last else 1000 * (gpu.node_us if source.launch == "graph" else gpu.launch_us)
        if exchanges := self.declared("by_value", 0):
            return exchanges * gpu.exchange_ns
        counted = self.counted("grid_barriers") + self.declared("extra_barriers", 0)
        return counted * (1000 * gpu.barrier_us + gpu.l2_ns)  # its release waits for the block's stores

    def _ns(self, clocks: Clocks) -> float:
        """ns of clocks by cause, with this GPU's latencies in place of the walk's."""
        now, walked = self.gpu.latency, self.kernel.chains.latency
        scaled = (each * now[cause] / walked[cause] if cause in walked else each for cause, each in clocks.items())
        return sum(scaled) / self.gpu.clock_ghz

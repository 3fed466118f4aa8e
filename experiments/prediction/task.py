"""Vocabulary of the simulation: the memory of a GPU, the work of an SM in a stage, and the times of a step.

Times are in ns, sizes in bytes.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import inf


@dataclass(frozen=True)
class Memory:
    """rate: of all SMs together; port: into one SM, both in bytes a ns; latency of memory, l2_latency of a hit."""

    rate: float
    latency: float
    l2_latency: float
    l2_bytes: float = inf
    port: float = inf
    queue_share: float = 0.0


@dataclass(frozen=True)
class Task:
    """Work of the busiest SM in one stage of one layer.

    size      bytes that it reads; total: that all SMs read together, at least `size`
    rate      bytes a ns that it multiplies
    tile      bytes of one request; place: bytes requested and not multiplied yet; window: bytes under way
    ahead     whether tiles are requested before the stage has its input
    before    ns from the input to the first request, unless the loader runs ahead, and to the multiplication
    head      further ns to the multiplication, beside the loads
    lag       ns that a tile's place stays taken after its multiplication
    tail      ns from the last multiplication to the publication
    prefetch  bytes that the grid requests into L2: when the stage begins if `early`, when its last tile is requested if
              `by_loader`, else when it publishes
    fetched   bytes of the stage that an earlier prefetch may have put there; evenly: among its tiles, not its first
    kept      bytes of the stage, of all SMs, that L2 has from the step before, in tiles evenly among the others
    exchange  ns from the publication to the next stage's input, beside the wait for memory's queue; 0: the next stage
              begins at once. read: bytes that every SM reads with it
    """

    name: str
    size: float = 0.0
    total: float = 0.0
    rate: float = inf
    tile: float = inf
    place: float = inf
    window: float = inf
    ahead: bool = False
    before: float = 0.0
    head: float = 0.0
    lag: float = 0.0
    tail: float = 0.0
    prefetch: float = 0.0
    early: bool = False
    by_loader: bool = False
    fetched: float = 0.0
    evenly: bool = False
    kept: float = 0.0
    exchange: float = 0.0
    read: float = 0.0

    @cached_property
    def tiles(self) -> int:
        return max(1, round(self.size / self.tile)) if self.size else 0


@dataclass
class Times:
    """ns of a step: total, of it in exchanges, in chains of dependent steps, and for bytes; stages: by name.

    served: bytes from memory to all SMs.
    """

    total: float = 0.0
    exchanges: float = 0.0
    chains: float = 0.0
    loads: float = 0.0
    served: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Times", times: int = 1) -> None:
        """Add `times` times `other`."""
        for name in ("total", "exchanges", "chains", "loads", "served"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        for stage, took in other.stages.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + times * took

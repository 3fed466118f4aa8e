"""GPUs for predictions: the constants of conf/gpu.yaml and conf/gpu/ with their ranges, replaced by measured ones."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from common.errors import LabError, known

DRAWS = 12  # samples of the constants for the interval of a prediction, besides their ends
FASTER = ("read_efficiency", "clock_ghz", "bytes_per_clock")  # more is faster; of all other ranges less is
SEED = 3
Ends = tuple[float, float]  # low and high of a range
Ranged = tuple[float, Ends]  # a value and its range
NOTHING: Mapping[str, Ranged] = {}


@dataclass(frozen=True)
class GpuModel:
    """Constants of a GPU that a prediction uses; the source of each is in its yaml.

    key, arch        the yaml's name, and what ptxas calls it; name: as it occurs in what the driver reports
    bandwidth_gbps   peak of the memory in 10^9 bytes a second; read_efficiency: the share that reading alone reaches
    clock_ghz        of the SMs while they decode
    latency_ns, l2_ns   of one load from memory, and of one that L2 has
    barrier_us, node_us, launch_us   of a grid barrier, a node of a CUDA graph, a kernel launch
    exchange_ns      from a store to its use by all other SMs, by sentinel (flag-in-data)
    queue_share      of memory's queue that an exchange stands in
    block_barrier_clocks   of a block barrier
    shared_clocks, shuffle_clocks, l1_clocks   until the result of a load from shared memory, of a shuffle, of an L1 hit
    special_clocks   of a square root, a reciprocal, a conversion; phase_clocks: of a look at an mbarrier
    operand_clocks   until a load or a store has read its registers
    l1_bytes, port_bytes   a clock, out of L1 or shared memory, and from L2 into one SM
    power_w          the board's limit
    ranges           {constant: (low, high)} of the uncertain ones
    measured         which of the figures come from records of that GPU
    """

    key: str
    name: str
    arch: str
    bandwidth_gbps: float
    read_efficiency: float
    multiprocessors: int
    l2_bytes: int
    clock_ghz: float
    latency_ns: float
    l2_ns: float
    barrier_us: float
    node_us: float
    launch_us: float
    exchange_ns: float
    queue_share: float
    block_barrier_clocks: float
    shared_clocks: float
    shuffle_clocks: float
    l1_clocks: float
    special_clocks: float
    phase_clocks: float
    operand_clocks: float
    l1_bytes: float
    port_bytes: float
    power_w: float
    ranges: Mapping[str, Ends] = field(default_factory=dict)
    measured: tuple[str, ...] = ()

    @property
    def read_rate(self) -> float:
        """Bytes a second from memory to a kernel that only reads."""
        return 1e9 * self.bandwidth_gbps * self.read_efficiency

    @property
    def latency(self) -> dict[str, float]:
        """Clocks by cause of a wait, as `experiments.prediction.sass.walk` names it."""
        return {
            "shared": self.shared_clocks,
            "shuffle": self.shuffle_clocks,
            "special": self.special_clocks,
            "phase": self.phase_clocks,
            "barrier": self.block_barrier_clocks,
            "operands": self.operand_clocks,
            "l1": self.l1_clocks,
            "l2": self.l2_ns * self.clock_ghz,
            "memory": self.latency_ns * self.clock_ghz,
            "poll": self.exchange_ns * self.clock_ghz,
        }

    def draws(self, more: Mapping[str, Ranged] = NOTHING) -> "list[tuple[GpuModel, dict[str, Any]]]":
        """This GPU; with all constants at the fast, then at the slow ends of their ranges; DRAWS samples between.

        more: further constants with their ranges, of a kernel; each draw has a value of them. The same ones every time:
        a Latin hypercube, in which each constant takes a value from each of DRAWS equal parts of its range once.
        """
        drawn: list[tuple[GpuModel, dict[str, Any]]] = [(self, {name: value for name, (value, _) in more.items()})]
        for draw in range(2 + DRAWS):
            own: dict[str, Any] = {name: _drawn(name, ends, draw) for name, ends in self.ranges.items()}
            drawn.append((replace(self, **own), {name: _drawn(name, ends, draw) for name, (_, ends) in more.items()}))
        return drawn


def _drawn(name: str, ends: Ends, draw: int) -> float:
    low, high = ends
    return low + _places(name)[draw] * (high - low)


@cache
def _places(name: str) -> tuple[float, ...]:
    """Places in the range of a constant, 0 to 1: the fast end, the slow end, DRAWS others in an order of its own."""
    random = np.random.default_rng([SEED, *name.encode()])
    fast, between = float(name in FASTER), (random.permutation(DRAWS) + random.uniform(size=DRAWS)) / DRAWS
    return fast, 1 - fast, *map(float, between)


def names(root: Path = ROOT) -> list[str]:
    """Keys of all GPUs that are described."""
    return sorted(path.stem for path in (root / "conf" / "gpu").glob("*.yaml"))


def read(key: str, records: Iterable[Mapping[str, Any]] = (), root: Path = ROOT) -> GpuModel:
    """The GPU `key`; records of `roofline` and `sync_cost` on it, the newest last, replace constants.

    Raises LabError for an unknown key or a bad value.
    """
    known("gpu", key, names(root))
    yamls = (root / "conf" / name for name in ("gpu.yaml", f"gpu/{key}.yaml"))
    section = Section.from_config(OmegaConf.merge(*map(OmegaConf.load, yamls)), f"gpu/{key}: ")
    gpu = GpuModel(key=key, **described(section, GpuModel, without=("key", "ranges", "measured")))
    for record in records:
        gpu = _learn(gpu, record)
    return gpu


def described(section: Section, kind: type, without: Collection[str]) -> dict[str, Any]:
    """The fields of a dataclass, but for `without`, as a yaml describes them, and `ranges`.

    A float may be {value, low, high}. Raises LabError for a bad value, and for one outside its range.
    """
    types = {one.name: one.type for one in fields(kind) if one.name not in without}
    section.only(types)
    values: dict[str, Any] = {}
    ranges: dict[str, Ends] = {}
    for name, type_ in types.items():
        if type_ is float and isinstance(section.values.get(name), dict):
            values[name], ranges[name] = _ranged(section.section(name))
        elif type_ is str:
            values[name] = section.text(name)
        elif type_ is bool:
            values[name] = section.flag(name)
        elif type_ is int:
            values[name] = section.whole(name, low=1)
        else:
            values[name] = section.number(name) if type_ is float else section.section(name).values
    return values | {"ranges": ranges}


def _ranged(section: Section) -> Ranged:
    section.only({"value", "low", "high"})
    value, low, high = (section.number(name) for name in ("value", "low", "high"))
    if not low <= value <= high:
        raise LabError(f"{section.path}value={value} is not in low..high, {low}..{high}", "widen the range")
    return value, (low, high)


def _learn(gpu: GpuModel, record: Mapping[str, Any]) -> GpuModel:
    """`gpu` with the constants that `record` measured on it, which have no range any more."""
    found = (record.get("provenance") or {}).get("gpu") or {}
    if record.get("basis") != "measured" or gpu.name not in (found.get("name") or ""):
        return gpu
    news: dict[str, Any] = {}
    for row in record.get("table", []):
        if record["kind"] == "roofline" and row.get("what") == "read, 128-bit loads":
            news["read_efficiency"] = row["GB/s"] / gpu.bandwidth_gbps
        if record["kind"] == "sync_cost" and row.get("blocks") == gpu.multiprocessors:
            meaning = {"cooperative barrier": "barrier_us", "graph node": "node_us", "queued launch": "launch_us"}
            if name := meaning.get(row["operation"]):
                news[name] = row["us"]
    news |= _of_exchanges(gpu, record) if record["kind"] == "sync_cost" else {}
    news |= _of_windows(gpu, record) if record["kind"] == "roofline" else {}
    ranges = {name: ends for name, ends in gpu.ranges.items() if name not in news}
    return replace(gpu, measured=tuple(sorted({*gpu.measured, *news})), ranges=ranges, **news)


def _of_exchanges(gpu: GpuModel, record: Mapping[str, Any]) -> dict[str, float]:
    """Time of an exchange by value alone, and its share of memory's queue beside the most bytes.

    Bytes in flight on all SMs over the read rate are a byte's wait (Little's law): a latency, and the queue. The share
    is at most all of it: an exchange of the probe takes several trips through a queue that never empties, as its
    loaders do not wait for exchanges; a kernel's do.
    """
    rows = [row for row in record["table"] if row["operation"] == "exchange by value" and row.get("us")]
    rows.sort(key=lambda row: row["KB under way"])
    if not rows or rows[0]["KB under way"]:
        return {}
    alone, beside = rows[0], rows[-1]
    found = {"exchange_ns": 1000 * alone["us"]}
    if beside.get("GB/s"):
        queue = _waits(beside, gpu.multiprocessors) - gpu.latency_ns
        if queue > 0:
            found["queue_share"] = min(1.0, max(0.0, 1000 * (beside["us"] - alone["us"]) / queue))
    return found


def _of_windows(gpu: GpuModel, record: Mapping[str, Any]) -> dict[str, float]:
    """The latency of a load beside the fewest others: with so little under way, memory has no queue."""
    rows = [row for row in record["table"] if row.get("kind") == "window" and row.get("GB/s")]
    least = min(rows, key=lambda row: row["KB under way"], default=None)
    return {"latency_ns": _waits(least, gpu.multiprocessors)} if least else {}


def _waits(row: Mapping[str, Any], multiprocessors: int) -> float:
    """ns from the request of a byte until it is there, by Little's law."""
    return 1024 * row["KB under way"] * multiprocessors / row["GB/s"]

"""GPUs for predictions: the constants of conf/gpu/*.yaml, replaced by measured ones where records have them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from common.errors.suggest import unknown


@dataclass(frozen=True)
class GpuModel:
    """Constants of a GPU that a prediction uses; the source of each is in its yaml.

    key              the yaml's name; name: as it occurs in what the driver reports
    bandwidth_gbps   peak of the memory in 10^9 bytes a second; read_efficiency: the share that reading alone reaches
    latency_ns       of one load from memory
    barrier_us, node_us, launch_us   of a grid barrier, a node of a CUDA graph, a kernel launch
    power_w          the board's limit
    measured         which of the figures come from records of that GPU
    """

    key: str
    name: str
    bandwidth_gbps: float
    read_efficiency: float
    multiprocessors: int
    l2_bytes: int
    latency_ns: float
    barrier_us: float
    node_us: float
    launch_us: float
    power_w: float
    measured: tuple[str, ...] = ()

    @property
    def read_rate(self) -> float:
        """Bytes a second from memory to a kernel that only reads."""
        return 1e9 * self.bandwidth_gbps * self.read_efficiency


def names(root: Path = ROOT) -> list[str]:
    """Keys of all GPUs that are described."""
    return sorted(path.stem for path in (root / "conf" / "gpu").glob("*.yaml"))


def read(key: str, records: Iterable[Mapping[str, Any]] = (), root: Path = ROOT) -> GpuModel:
    """The GPU `key`; records of `roofline` and `sync_cost` on it, the newest last, replace what they measured.

    Raises LabError for an unknown key or a bad value.
    """
    if key not in names(root):
        raise unknown("gpu", key, names(root))
    section = Section.from_config(OmegaConf.load(root / "conf" / "gpu" / f"{key}.yaml"), f"gpu/{key}: ")
    numbers = [field.name for field in fields(GpuModel) if field.name not in ("key", "name", "measured")]
    section.only({"name", *numbers})
    whole = ("multiprocessors", "l2_bytes")
    values: dict[str, Any] = {
        name: section.whole(name, low=1) if name in whole else section.number(name) for name in numbers
    }
    gpu = GpuModel(key=key, name=section.text("name"), **values)
    for record in records:
        gpu = _learn(gpu, record)
    return gpu


def _learn(gpu: GpuModel, record: Mapping[str, Any]) -> GpuModel:
    """`gpu` with the constants that `record` measured on it."""
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
    return replace(gpu, measured=tuple(sorted({*gpu.measured, *news})), **news)

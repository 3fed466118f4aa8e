"""GPUs of conf/gpu/: the datasheet's bandwidth, and what the lab has measured on them."""

from dataclasses import dataclass

from omegaconf import OmegaConf

from common import ROOT
from common.config.section import Section
from common.errors import LabError, known

FOLDER = ROOT / "conf" / "gpu"


@dataclass(frozen=True)
class Costs:
    """Times of a GPU, each measured alone; the yaml names the record of each.

    read_gbps        rate of a kernel that only reads, in 10^9 bytes a second
    barrier_us       a grid barrier of a cooperative launch, between blocks that do nothing else
    own_barrier_us   the lab's barrier for other launches
    exchange_us      an exchange by value: words of all SMs to all SMs
    node_us, launch_us   a node of a CUDA graph, a queued launch of a kernel
    """

    read_gbps: float
    barrier_us: float
    own_barrier_us: float
    exchange_us: float
    node_us: float
    launch_us: float


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    name             part of what the driver reports
    bandwidth_gbps   peak of the memory by the datasheet, in 10^9 bytes a second
    measured         None where no record has these times of this GPU
    """

    name: str
    bandwidth_gbps: float
    measured: Costs | None = None

    @property
    def costs(self) -> Costs:
        """`measured`. Raises LabError for a GPU that nobody has measured."""
        if self.measured is None:
            cause = f"no estimate for {self.name}: nobody has measured with this lab what it takes"
            raise LabError(cause, "give options.gpu=h100, or measure one and write its conf/gpu/ yaml as h100.yaml is")
        return self.measured


def names() -> list[str]:
    """Keys of all GPUs that are described."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(key: str) -> Gpu:
    """The GPU of conf/gpu/<key>.yaml. Raises LabError for an unknown key or a bad value."""
    path = FOLDER / f"{known('gpu', key, names())}.yaml"
    return Section.from_config(OmegaConf.load(path), f"gpu/{key}: ").read(Gpu)

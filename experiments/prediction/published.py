"""Published rates of decoding Qwen3-0.6B with bf16 weights, one sequence at a time, with their sources."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.tables.row import NOT_MODELLED, Forecast


@dataclass(frozen=True)
class Source:
    """Source of published figures: author, address, GPU and grid; power_w: the board's limit where it is given."""

    name: str
    author: str
    url: str
    machine: str
    power_w: float | None = None


@dataclass(frozen=True)
class PublishedRate:
    """One published figure.

    build  which build of the source's kernel it is
    gpu    key of conf/gpu/; stack: its nearest counterpart here, a variant, a named stack or `baseline`
    rate   tokens a second at `position`
    """

    source: Source
    build: str
    gpu: str
    stack: str
    position: int
    rate: float

    @property
    def system(self) -> str:
        return f"{self.source.name}, {self.build}"


# Its RESULTS.md gives the board's limit, the grid and the cost of a barrier; none of the sources gives clocks.
MEGAQWEN = Source(
    "MegaQwen", "Elliot Arledge", "https://github.com/Infatoshi/MegaQwen", "RTX 3090 (420 W), 82 x 256", power_w=420
)
ALPINDALE = Source(
    "qwen_megakernel", "AlpinDale", "https://blog.alpindale.net/posts/5090_decode_optimization/", "RTX 5090, 128 x 512"
)
RATES = (
    # The stages that the cooperative kernel's author reports: the start, with redundant norms, the end. The source that
    # belongs to the last has norms by one block, a barrier after each of 8 stages, and 64-bit loads, as this lab's
    # baseline. Its prefetch by loads is in no compiled code (nvcc 13.0, sm_86): nothing uses the loaded values.
    PublishedRate(MEGAQWEN, "start", "rtx3090", "baseline", 1, 170),
    PublishedRate(MEGAQWEN, "redundant norms", "rtx3090", "redundant_rmsnorm", 1, 242),
    PublishedRate(MEGAQWEN, "all", "rtx3090", "baseline", 1, 525),
    PublishedRate(MEGAQWEN, "all", "rtx3090", "baseline", 50, 500),
    PublishedRate(MEGAQWEN, "all", "rtx3090", "baseline", 100, 472),
    PublishedRate(MEGAQWEN, "all", "rtx3090", "baseline", 200, 422),
    PublishedRate(MEGAQWEN, "all", "rtx3090", "baseline", 300, 382),
    # Later builds are faster, but their argmax drops a slot of a block: they cannot choose a third of the vocabulary.
    PublishedRate(ALPINDALE, "last with a sound argmax", "rtx5090", "persistent", 1, 1014),
)
# What MegaQwen reports of single changes, RTX 3090: percent of tokens a second, short contexts.
GAINS = {
    "l2_prefetch": 100,  # "2x"
    "redundant_rmsnorm": 42,
    "vec128": 3.5,
    "cp_async": 1,
    "smem_cache": 0,
    "warp_split": -3.9,  # ratio 2:6 against 0:8, see RATIOS
    "head_split": -33,
}
# MegaQwen's sweep of producer and consumer warps: tokens a second, the average over its positions.
RATIOS = {"0:8": 509.9, "1:7": 510.8, "2:6": 489.9, "3:5": 498.7, "4:4": 478.6}
FREE = 1.0  # percent by which a predicted interval may miss a published gain and still meet it


def error(predicted: float, published: float) -> float:
    """Percent by which the predicted rate is above the published one."""
    return 100 * (predicted / published - 1)


def rate_change(time: float) -> float:
    """Percent of tokens a second that belong to a relative change of a token's time, and the other way round."""
    return 100 * (1 / (1 + time) - 1)


def gain(found: Forecast) -> tuple[float, float] | None:
    """The effect's interval in percent of tokens a second; (0, 0) where it is not modelled."""
    if found.note == NOT_MODELLED:
        return 0.0, 0.0
    return found.effect_interval and (rate_change(found.effect_interval[1]), rate_change(found.effect_interval[0]))


def meets(name: str, interval: tuple[float, float]) -> bool:
    """True if a predicted interval, in percent of tokens a second, holds the published gain or misses it by FREE."""
    return interval[0] - FREE <= GAINS[name] <= interval[1] + FREE


def errors(rows: Iterable[Mapping[str, Any]], gains: Mapping[str, tuple[float, float]]) -> list[str]:
    """The sentence on the model's error; none without a published rate.

    rows: of `experiment=predict`; gains: predicted intervals of changes in GAINS, in percent of tokens a second.
    """
    known = [row for row in rows if row["error %"] is not None]
    if not known:
        return []
    off = sorted(row["error %"] for row in known)
    kernels = len({(row["gpu"], row["stack"], row["system"]) for row in known})
    found = (
        f"{len(known)} published rates of {kernels} kernel{'s' * (kernels > 1)} are missed by {off[0]:+.0f} to "
        f"{off[-1]:+.0f} %, half of them by at most {median(map(abs, off)):.0f} %"
    )
    reached = sorted(row["error %"] for row in known if row.get("in range") != "no")
    if 0 < len(reached) < len(off):
        out = len(off) - len(reached)
        found += (
            f"; without the {out} that no constants in their ranges give, by {reached[0]:+.0f} to {reached[-1]:+.0f} %"
        )
    found += "."
    if not gains:
        return [found]
    met = [name for name, interval in gains.items() if meets(name, interval)]
    return [f"Of {len(gains)} published gains of single optimizations the model meets {len(met)}; {found}"]

"""Published rates of decoding Qwen3-0.6B with bf16 weights, one sequence at a time, with their sources."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Source:
    """Where figures were published: author, address, GPU and grid; power_w: the board's limit where it is given."""

    name: str
    author: str
    url: str
    machine: str
    power_w: float | None = None


@dataclass(frozen=True)
class Figure:
    """One published figure.

    build  which build of the source's kernel it is
    gpu    key of conf/gpu/; stack: what of this lab comes nearest to it, a variant, a named stack or `baseline`
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
FIGURES = (
    # The stages that the cooperative kernel's author reports: the start, with redundant norms, the end. The source that
    # belongs to the last has norms by one block, a barrier after each of 8 stages, and 64-bit loads, as this lab's
    # baseline. Its prefetch by loads is in no compiled code (nvcc 13.0, sm_86): nothing uses what they load.
    Figure(MEGAQWEN, "start", "rtx3090", "baseline", 1, 170),
    Figure(MEGAQWEN, "redundant norms", "rtx3090", "redundant_rmsnorm", 1, 242),
    Figure(MEGAQWEN, "all", "rtx3090", "baseline", 1, 525),
    Figure(MEGAQWEN, "all", "rtx3090", "baseline", 50, 500),
    Figure(MEGAQWEN, "all", "rtx3090", "baseline", 100, 472),
    Figure(MEGAQWEN, "all", "rtx3090", "baseline", 200, 422),
    Figure(MEGAQWEN, "all", "rtx3090", "baseline", 300, 382),
    # Later builds are faster, but their argmax drops a slot of a block: they cannot choose a third of the vocabulary.
    Figure(ALPINDALE, "last with a sound argmax", "rtx5090", "persistent", 1, 1014),
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


def error(predicted: float, published: float) -> float:
    """Percent by which the predicted rate is above the published one."""
    return 100 * (predicted / published - 1)


def errors(found: Iterable[float | None]) -> list[str]:
    """A sentence on the errors of rates in percent; none without a published rate."""
    if not (known := sorted(each for each in found if each is not None)):
        return []
    return [
        f"Against the {len(known)} published rates, the predicted ones are off by {known[0]:+.0f} to "
        f"{known[-1]:+.0f} %, the median of the sizes is {median(map(abs, known)):.0f} %."
    ]

"""Measured time of a kernel, as recorded: an estimate with its interval, and a comparison with the parent."""

from dataclasses import dataclass
from typing import Any

from common.display.table import Shown

IMPLAUSIBLE = "IMPLAUSIBLE"  # verdict of a measurement that needs more bandwidth than the GPU has
STOPPED = "STOPPED"  # verdict of a measurement ended early: its stack is too slow to win a search


@dataclass(frozen=True)
class Estimate:
    """A median and its confidence interval (95 %), in the unit of the samples."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the median: 0.005 is half a percent."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True)
class Comparison:
    """Relative change of the child's time against its parent's: -0.1 is 10 % less time. `low`, `high`: its interval."""

    effect: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True, repr=False)
class Measurement(Shown):
    """Time of one decode step, averaged over `steps` tokens from `position` on.

    "Latency at position p" is the mean over positions p to p + steps - 1, and `bytes_per_step` is the mean over the
    same positions (20 steps of Qwen3-0.6B: 0.1 % more bytes than at p alone). With position 0 and the steps of a whole
    generation, the inverse of `seconds` is the throughput of that generation.

    seconds     per step: median over rounds, with its confidence interval
    samples     seconds per step, one for each round; index i is the same round for all kernels
    bandwidth   bytes_per_step / median, in bytes per second
    of_ceiling  bandwidth / best read-only bandwidth
    comparison  with the parent; None without one
    verdict     FASTER, SAME, SLOWER, UNSTABLE, IMPLAUSIBLE, STOPPED; None: a narrow enough interval without a parent
    readings    the GPU's clocks, power, temperature and throttling after each round; () without NVML
    marks       disturbances found in the readings: throttling, other processes, clocks that changed
    """

    stack: tuple[str, ...]
    position: int
    steps: int
    seconds: Estimate
    samples: tuple[float, ...]
    bytes_per_step: float
    bandwidth: float
    of_ceiling: float
    comparison: Comparison | None = None
    verdict: str | None = None
    readings: tuple[dict[str, Any], ...] = ()
    marks: tuple[str, ...] = ()

    def columns(self) -> dict[str, Any]:
        found: dict[str, Any] = {"position": self.position, "steps": self.steps}
        found |= {"us a step": 1e6 * self.seconds.median}
        found |= {"+- %": 100 * self.seconds.half_width, "GB/s": self.bandwidth / 1e9}
        found |= {"% of read ceiling": 100 * self.of_ceiling, "against parent": self.verdict}
        return found | ({"marks": ", ".join(self.marks)} if self.marks else {})

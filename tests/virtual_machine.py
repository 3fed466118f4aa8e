"""A machine with a virtual clock, whose steps of the evidence take what conf/evidence.yaml assumes, or longer."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.config.budget import Budget
from common.config.device_choice import DeviceChoice
from common.record.store import Store
from experiments.evidence.execute import Ended

GPU = DeviceChoice("cuda", "A GPU")
ROWS = {
    "tests": 0,
    "ceiling": 1,
    "barriers": 12,
    "validation": 16,
    "ablation": 19,
    "ladder": 9,
    "roofline": 2,
    "positions": 3,
}
ROWS |= {"ratios": 5, "factorial": 16, "rivals": 4, "energy": 2, "quality": 17, "ncu": 0}
START = 5.0  # virtual seconds of a process until its first row
YAML = {step.name: step for step in OmegaConf.load(ROOT / "conf" / "evidence.yaml").cuda.steps}
ALONE = [name for name, number in ROWS.items() if not number]


def row_seconds(step: str) -> float:
    """So many that the whole step takes as long as conf/evidence.yaml assumes."""
    return (YAML[step].seconds - START) / ROWS[step]


class Machine:
    """A machine with a virtual clock. `begun`: (step, seconds that were left) in order; slow: how many times longer."""

    def __init__(self, results: Path, slow: float = 1.0) -> None:
        self.now, self.results, self.slow, self.begun = 0.0, results, slow, list[tuple[str, float]]()
        self.fail: dict[str, int] = {}

    def execute(self, argv: Sequence[str], seconds: float) -> Ended:
        step = self.name(argv)
        self.begun.append((step, seconds))
        self.until = self.now + seconds
        if step in self.fail:
            return Ended(self.fail[step], "it failed\n")
        try:
            return self.alone(step) if step in ALONE else self.rows(step, argv)
        except TimeoutError:
            return Ended(None, "")

    def work(self, seconds: float) -> None:
        """Until then, or the step's deadline: there its process is stopped."""
        self.now += min(seconds * self.slow, self.until - self.now)
        if self.now == self.until:
            raise TimeoutError

    def alone(self, step: str) -> Ended:
        self.work(YAML[step].seconds)
        return Ended(0, "")

    def rows(self, step: str, argv: Sequence[str]) -> Ended:
        self.work(START)
        given = dict(word.partition("=")[::2] for word in argv)
        until = self.now + float(given["budget_s"]) if "budget_s" in given else None
        limit, store = Budget(until, float(given["row_s"])), Store(self.results)
        known = [row for row in store.records() if row["kind"] == "row" and row["asked"]["task"] == step]
        took = [row["took"] for row in known]
        for number in range(len(known), ROWS[step]):
            if not limit.holds(took):
                return Ended(3, "")
            began = self.now
            self.work(self.seconds_of(step, number))
            took.append(self.now - began)
            row = {"kind": "row", "asked": {"task": step, "row": number}, "took": took[-1]}
            store.append(row | {"reason": "", "provenance": {}})
        return Ended(0, "")

    def seconds_of(self, step: str, row: int) -> float:
        return row_seconds(step)

    @staticmethod
    def name(argv: Sequence[str]) -> str:
        words = " ".join(argv)
        known = {"experiment=sync_cost": "barriers", "variant=catalog": "validation", "variant=ladder": "ladder"}
        known |= {"[baseline]": "ceiling"}
        known |= {f"experiment={name} ": name for name in ROWS} | {"tool=ncu": "ncu"}
        return "tests" if argv[0] == "pytest" else next(name for part, name in known.items() if part in words)

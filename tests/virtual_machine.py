"""A machine with a virtual clock: steps of the evidence take the times of conf/evidence.yaml, or longer."""

from collections.abc import Sequence
from math import inf
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.config.budget import Budget
from common.config.device_choice import DeviceChoice
from common.record.store import Store
from experiments.evidence.execute import Ended

GPU = DeviceChoice("cuda", "A GPU")
START = 5.0  # virtual seconds of a process until its first row
CUDA = OmegaConf.load(ROOT / "conf" / "evidence.yaml").cuda
YAML = {step.name: step for step in CUDA.steps}
ROWS = {name: round((step.seconds - START) / step.row_s) if "row_s" in step else 0 for name, step in YAML.items()}
ALONE = [name for name, number in ROWS.items() if not number]


def row_seconds(step: str) -> float:
    """So many that the whole step takes as long as conf/evidence.yaml assumes."""
    return (YAML[step].seconds - START) / ROWS[step]


class Machine:
    """A machine with a virtual clock. `begun`: (step, seconds that were left) in order; slow: how many times longer.

    hangs: steps with a next row that never ends.
    """

    def __init__(self, results: Path, slow: float = 1.0) -> None:
        self.now, self.results, self.slow, self.begun = 0.0, results, slow, list[tuple[str, float]]()
        self.fail: dict[str, int] = {}
        self.hangs = set[str]()

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
        self.work(inf if step in self.hangs else YAML[step].seconds)
        return Ended(0, "")

    def rows(self, step: str, argv: Sequence[str]) -> Ended:
        self.work(START)
        given = dict(word.partition("=")[::2] for word in argv)
        limit, store = Budget(self.now + float(given["budget_s"]), float(given["row_s"])), Store(self.results)
        known = [row for row in store.records() if row["kind"] == "row" and row["asked"]["task"] == step]
        took = [row["took"] for row in known]
        for number in range(len(known), ROWS[step]):
            if not limit.holds(took):
                return Ended(3, "")
            began = self.now
            self.work(inf if step in self.hangs else self.seconds_of(step, number))
            took.append(self.now - began)
            row = {"kind": "row", "asked": {"task": step, "row": number, "seed": 1}, "took": took[-1]}
            store.append(row | {"reason": "", "provenance": {}})
        return Ended(0, "")

    def seconds_of(self, step: str, row: int) -> float:
        return row_seconds(step)

    @staticmethod
    def name(argv: Sequence[str]) -> str:
        """The step that runs this with the most of these arguments."""
        fit = [
            (len(step.args), name)
            for name, step in YAML.items()
            if step.get("run", "experiments") == argv[0] and set(step.args) <= set(argv)
        ]
        return max(fit)[1]

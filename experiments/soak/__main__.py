"""The lab under what happens to it, for longer than a test may take: `python -m experiments.soak --help`."""

import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from common.cli import launch
from common.config import SEEDS
from common.records import Store
from common.section import Section
from experiments.outcome import COUNTED, Outcome, keep, show
from experiments.progress import progress
from experiments.soak.kills import Killed, kills

QUESTION = "what the lab promises when things go wrong, tried on the host device"


@dataclass(frozen=True)
class Asked:
    """What conf/soak.yaml explains."""

    kills: int
    validations: int
    inputs: int
    seed: int
    results: Path


def request(cfg: DictConfig) -> Asked:
    """Raises LabError for a bad value, or a store that cannot be written."""
    section = Section(OmegaConf.to_container(cfg, resolve=True))
    section.only({"kills", "validations", "inputs", "seed", "results", "debug"})
    amounts = (section.whole(name, low=1) for name in ("kills", "validations", "inputs"))
    seed = section.whole("seed", 0, SEEDS - 1) if section.given("seed") else random.SystemRandom().randrange(SEEDS)
    asked = Asked(*amounts, seed, Path(section.text("results")))
    Store(asked.results).check()
    return asked


def soak(asked: Asked) -> int:
    """Try every promise, keep what came of it as a record and print it; 0 when nothing went wrong, else 1."""
    from experiments.soak.alarms import false_alarms
    from experiments.soak.malformed import faults

    with tempfile.TemporaryDirectory() as name, progress(3) as bar:
        folder = Path(name)
        bar.note(f"seed {asked.seed}")
        bar.begin(f"{asked.kills} kills")
        killed = kills(asked.kills, folder, asked.seed)
        bar.begin(f"{asked.validations} validations of sound variants")
        alarms = false_alarms(asked.validations, folder, asked.seed)
        bar.begin(f"{asked.inputs} malformed inputs")
        accepted = faults(asked.inputs, folder / "malformed", asked.seed)
    found = outcome(killed, asked.validations, alarms, asked.inputs, accepted)
    keep(found, Store(asked.results), {"seed": asked.seed})
    show(found)
    return int(any(found.table["went wrong"]))


def outcome(killed: Killed, validations: int, alarms: Sequence[str], inputs: int, accepted: Sequence[str]) -> Outcome:
    """A row for each promise; what broke it is in the notes, one line each."""
    import pandas as pd

    kills_, sweeps = f"{killed.parents + killed.children} kills", f"{killed.sweeps} sweeps"
    rows = [
        ("a finished record is lost by a kill", kills_, killed.lost),
        ("a line of the store is torn", kills_, killed.torn),
        ("a stack has two finished records", sweeps, killed.twice),
        ("a resumed sweep has a row that an undisturbed one has otherwise", sweeps, len(killed.different)),
        ("a sound variant raises an alarm", f"{validations} validations", len(alarms)),
        ("a malformed input is not refused in one line, or leaves something behind", f"{inputs} inputs", len(accepted)),
    ]
    table = pd.DataFrame(rows, columns=["what must not happen", "tried", "went wrong"])
    notes = [
        f"Killed at random instants: the sweep {killed.parents} times, one of its workers {killed.children} times."
    ]
    notes += [f"went wrong: {line}" for line in (*killed.different, *alarms, *accepted)]
    return Outcome("soak", QUESTION, table, COUNTED, notes)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    asked: list[Asked] = []

    def read(cfg: DictConfig) -> int:
        asked.append(request(cfg))
        return 0

    # The malformed inputs go through Hydra, too, and it cannot run inside of itself.
    code = launch(read, "soak", sys.argv[1:] if argv is None else argv)
    return code or max(map(soak, asked), default=0)


if __name__ == "__main__":
    raise SystemExit(main())

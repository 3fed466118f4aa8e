"""Soak test of the lab's robustness, too long for a unit test: `python -m tests.strength.soak --help`."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_type_hints

from omegaconf import DictConfig

from common.config.cli import guarded, run_task
from common.config.resolve import seed_of
from common.config.run_config import Seed
from common.config.section import Section
from common.record.store import Store
from experiments.tables.commands import closing_lines
from experiments.tables.progress import progress
from experiments.tables.result_table import COUNTED, ResultTable, record_result, show_result
from tests.strength.soak.kills import Killed, kills

QUESTION = "whether the lab keeps its guarantees under kills and bad input, on the PTX device"


@dataclass(frozen=True)
class SoakOptions:
    """The keys of conf/soak.yaml, which explains them."""

    kills: int
    validations: int
    inputs: int
    seed: Seed
    results: Path


def options(cfg: DictConfig) -> SoakOptions:
    """The options of a configuration. Raises LabError for a bad value, or a store that cannot be written."""
    section = Section.from_config(cfg)
    section.only({*get_type_hints(SoakOptions), "debug"})
    wanted = SoakOptions(**section.fields(SoakOptions, but=["seed"]), seed=seed_of(section))
    Store(wanted.results).check()
    return wanted


def soak(wanted: SoakOptions) -> int:
    """Run all checks, append the result to the store and print it. Returns 0 when no check failed, else 1."""
    from tests.strength.soak.alarms import false_alarms
    from tests.strength.soak.hostile.trials import hostile

    with tempfile.TemporaryDirectory() as name, progress(3) as bar:
        folder = Path(name)
        bar.note(f"seed {wanted.seed}")
        bar.begin(f"{wanted.kills} kills")
        killed = kills(wanted.kills, folder, wanted.seed)
        bar.begin(f"{wanted.validations} validations of correct variants")
        alarms = false_alarms(wanted.validations, folder, wanted.seed)
        bar.note(f"{len(alarms)} of {wanted.validations} validations gave an alarm")
        for alarm in alarms:
            bar.note(alarm)
        bar.begin(f"{wanted.inputs} hostile inputs")
        accepted = hostile(wanted.inputs, folder / "hostile", wanted.seed)
    found = result(killed, wanted.validations, alarms, wanted.inputs, accepted)
    kept = record_result(found, Store(wanted.results), {"seed": wanted.seed})
    show_result(found)
    print(closing_lines([kept], wanted.results))
    return int(any(row["went wrong"] for row in found.rows))


def result(
    killed: Killed, validations: int, alarms: Sequence[str], inputs: int, accepted: Sequence[str]
) -> ResultTable:
    """A row for each guarantee; the notes have one line for each violation."""
    kills_, sweeps = f"{killed.parents + killed.children} kills", f"{killed.sweeps} sweeps"
    rows = [
        ("a finished record is lost by a kill", kills_, killed.lost),
        ("a line of the store is torn", kills_, killed.torn),
        ("a stack has two finished records", sweeps, killed.twice),
        ("a resumed sweep differs from an uninterrupted one in a row", sweeps, len(killed.different)),
        ("a correct variant does not pass", f"{validations} validations", len(alarms)),
        (
            "a hostile input is accepted in silence, or not refused in one line, or leaves a file",
            f"{inputs} inputs",
            len(accepted),
        ),
    ]
    heads = ("what must not happen", "tried", "went wrong")
    table = [dict(zip(heads, row, strict=True)) for row in rows]
    notes = [
        f"Killed at random instants: the sweep {killed.parents} times, one of its workers {killed.children} times."
    ]
    notes += [f"went wrong: {line}" for line in (*killed.different, *alarms, *accepted)]
    return ResultTable("soak", QUESTION, table, COUNTED, notes)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; `argv` without the program's name. Returns the exit code."""
    runs: list[SoakOptions] = []

    def read(cfg: DictConfig) -> int:
        runs.append(options(cfg))
        return 0

    # `soak` runs after Hydra has ended: the hostile inputs start Hydra again, and it cannot be nested.
    code = run_task(read, "soak", argv)
    return code or guarded(lambda: max(map(soak, runs), default=0))


if __name__ == "__main__":
    raise SystemExit(main())

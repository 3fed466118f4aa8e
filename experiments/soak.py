"""The lab under what happens to it, for longer than a test may take: `python -m experiments.soak --help`."""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from common.catalog import ROOT
from common.cli import launch
from common.config import SEEDS
from common.records import Store
from common.section import Section
from experiments.outcome import COUNTED, Outcome, keep, show
from experiments.progress import progress

QUESTION = "what the lab promises when things go wrong, tried on the host device"
SAME = ("key", "status", "counts", "source_sha", "knobs")  # of a row, whenever and however often it was interrupted


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


@dataclass
class Killed:
    """What became of sweeps that were killed: all counts but the first three should be 0."""

    parents: int = 0
    children: int = 0
    sweeps: int = 0  # that came to their end, in pieces
    lost: int = 0  # finished records that were there before a kill and not after
    torn: int = 0  # lines that are no record
    twice: int = 0  # stacks with two finished records
    different: list[str] = field(default_factory=list)  # rows that an undisturbed sweep has otherwise


def sweep(folder: Path, results: Path, *argv: str) -> list[str]:
    """The command of a resumable sweep on the host device, with its cache in `folder`."""
    fixed = ["device=host", "timing=none", "archs=[]", "model=tiny", "resume=true"]
    return [sys.executable, "-m", "experiments", *fixed, f"cache={folder / 'cache'}", f"results={results}", *argv]


def kills(count: int, folder: Path, seed: int, root: Path = ROOT, longest: float = 12.0) -> Killed:
    """SIGKILL a sweep `count` times at random instants, the parent or one of its workers, and resume it each time.

    longest: seconds after which a sweep is killed at the latest. One that has come to its end is compared with one that
    nobody disturbed, and the next begins.
    """
    rng, found, number = random.Random(seed), Killed(), 0
    argv = [f"seed={rng.randrange(2**31)}"]
    undisturbed = _finish(folder, folder / "undisturbed.jsonl", argv, root)
    while found.parents + found.children < count:
        store = Store(folder / f"killed {number}.jsonl")
        number += 1
        while found.parents + found.children < count:
            before = _ids(store)
            done = _kill_once(sweep(folder, store.path, *argv), rng, found, root, longest)
            found.lost += len(before - _ids(store))
            if done:
                break
        rows = _finish(folder, store.path, argv, root)
        found.sweeps += 1
        found.torn += store.path.with_name(store.path.name + ".corrupt").exists()
        finished = [row["key"] for row in store.rows() if row["status"] != "INTERRUPTED"]
        found.twice += len(finished) - len(set(finished))
        found.different += [name for name in undisturbed if rows.get(name) != undisturbed[name]]
    return found


def _kill_once(command: Sequence[str], rng: random.Random, found: Killed, root: Path, longest: float) -> bool:
    """Start the sweep and kill somebody; True when it came to its end before that, or nothing was left to kill."""
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child = rng.random() < 0.5
    try:
        process.wait(rng.uniform(0.5, longest))
        return True
    except subprocess.TimeoutExpired:
        workers = _children(process.pid) if child else []
    if workers:
        os.kill(rng.choice(workers), signal.SIGKILL)
        found.children += 1
        process.wait()  # the others go on, and it ends by itself
    else:
        process.kill()
        process.wait()
        found.parents += 1
    return False


def _finish(folder: Path, results: Path, argv: Sequence[str], root: Path) -> dict[str, dict[str, Any]]:
    """Resume until nothing is left; what each stack's last row says."""
    subprocess.run(sweep(folder, results, *argv), cwd=root, check=True, capture_output=True)
    return {row["variant"]: {name: row[name] for name in SAME} for row in Store(results).rows()}


def _ids(store: Store) -> set[str]:
    return {row["id"] for row in store.rows()}


def _children(pid: int) -> list[int]:
    """The processes that `pid` has started itself."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def false_alarms(count: int, folder: Path, seed: int) -> list[str]:
    """Validate sound variants `count` times, each with fresh weights, inputs and schedules; one line per alarm."""
    from common.catalog import read_catalog
    from common.check import validate
    from common.config import read_model
    from common.devices.host import HostDevice
    from common.layout import Layout
    from common.scenarios import scenarios
    from common.source import build
    from common.stack import choose_stacks
    from common.weights import load

    rng, catalog = random.Random(seed), read_catalog()
    model = read_model("tiny")
    stacks = choose_stacks(catalog, "all", None, {}, 256)
    alarms = []
    for number in range(count):
        stack, fresh = stacks[number % len(stacks)], rng.randrange(2**31)
        source = build([catalog.variants[name] for name in stack.variants], model, 256, stack.knobs)
        device = HostDevice(folder / "kernels", fresh)
        with tempfile.TemporaryDirectory(dir=folder) as weights:
            flat = load("synthetic", model, None, Path(weights), fresh)[2].flat
        session = device.session(device.compile(source), Layout(model), flat)
        verdict = validate(session, flat, model, scenarios(model, fresh, flat, quick=True), fresh)
        session.close()
        if not verdict.passed:
            alarms.append(f"{stack.name}: {verdict}")
    return alarms


def soak(asked: Asked) -> int:
    """Try every promise, keep what came of it as a record and print it; 0 when nothing went wrong, else 1."""
    from experiments.malformed import faults

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

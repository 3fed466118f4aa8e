"""SIGKILL at random instants: a sweep or a worker of it dies, is resumed, and must end as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.catalog import ROOT
from common.records import Store

SAME = ("key", "status", "counts", "source_sha", "knobs")  # of a row, whenever and however often it was interrupted


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

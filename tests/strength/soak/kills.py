"""SIGKILL at random instants: a killed sweep is resumed, and must end with the records of an uninterrupted one."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import ROOT
from common.record.store import Store

EARLIEST = 0.5  # seconds from the start of a sweep to its kill
SAME = ("key", "status", "counts", "source_sha", "knobs")  # fields that an interruption must not change


@dataclass
class Killed:
    """Counts over all killed sweeps. All but the first three must stay 0 or empty."""

    parents: int = 0  # kills of the sweep's own process
    children: int = 0  # kills of one of its workers
    sweeps: int = 0  # that ended after some kills
    lost: int = 0  # finished records that were in the store before a kill and not after it
    torn: int = 0  # stores with a line that is no record
    twice: int = 0  # second finished records of one stack
    different: list[str] = field(default_factory=list)  # variants with another row than after an uninterrupted sweep


def sweep(folder: Path, results: Path, *argv: str) -> list[str]:
    """The command of a resumable sweep on the PTX device, with its cache in `folder`."""
    fixed = ["device=ptx", "timing=none", "archs=[]", "validate=quick", "model=tiny", "resume=true"]
    return [sys.executable, "-m", "experiments", *fixed, f"cache={folder / 'cache'}", f"results={results}", *argv]


def kills(count: int, folder: Path, seed: int, root: Path = ROOT, longest: float = 12.0) -> Killed:
    """SIGKILL a sweep `count` times at random instants, the parent or one of its workers, and resume it each time.

    longest: largest time in seconds from the start of a sweep to its kill; less after a sweep that has ended in less. A
    sweep that ends is compared with an uninterrupted one, and the next sweep starts.
    """
    rng, found, number = random.Random(seed), Killed(), 0
    argv = [f"seed={rng.randrange(2**31)}"]
    uninterrupted = _finish(folder, folder / "uninterrupted.jsonl", argv, root)
    while found.parents + found.children < count:
        store = Store(folder / f"killed {number}.jsonl")
        number += 1
        while found.parents + found.children < count:
            before, began = _ids(store), time.monotonic()
            done = _kill_once(sweep(folder, store.path, *argv), rng, found, root, longest)
            found.lost += len(before - _ids(store))
            if done:
                longest = max(EARLIEST, min(longest, time.monotonic() - began))
                break
        rows = _finish(folder, store.path, argv, root)
        found.sweeps += 1
        found.torn += len(store.path.read_text().splitlines()) > len(store.records())
        finished = [row["key"] for row in store.records() if row["status"] != "INTERRUPTED"]
        found.twice += len(finished) - len(set(finished))
        found.different += [name for name in uninterrupted if rows.get(name) != uninterrupted[name]]
    return found


def _kill_once(command: Sequence[str], rng: random.Random, found: Killed, root: Path, longest: float) -> bool:
    """Start the sweep, then kill it or one of its workers. True when the sweep ended before that."""
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    child = rng.random() < 0.5
    try:
        process.wait(rng.uniform(EARLIEST, longest))
        return True
    except subprocess.TimeoutExpired:
        workers = _children(process.pid) if child else []
    if workers:
        os.kill(rng.choice(workers), signal.SIGKILL)
        found.children += 1
        process.wait()  # the sweep continues with its other workers until it ends
    else:
        process.kill()
        process.wait()
        found.parents += 1
    return False


def _finish(folder: Path, results: Path, argv: Sequence[str], root: Path) -> dict[str, dict[str, Any]]:
    """Resume the sweep to its end. Returns the fields SAME of each stack's last row."""
    subprocess.run(sweep(folder, results, *argv), cwd=root, check=True, capture_output=True)
    return {row["variant"]: {name: row[name] for name in SAME} for row in Store(results).records()}


def _ids(store: Store) -> set[str]:
    return {row["id"] for row in store.records()}


def _children(pid: int) -> list[int]:
    """The workers of `pid`: its child processes without the tracker of multiprocessing."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(one) for one in found if b"resource_tracker" not in Path(f"/proc/{one}/cmdline").read_bytes()]
    except OSError:
        return []

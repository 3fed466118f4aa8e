"""Caches with one damaged file: a read must be right, or refused in one line."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from common.cache.files import cached
from common.errors import LabError
from common.model.weights import load
from tests.strength.soak.hostile.checkpoints import MODEL

CONTENT = b"what a compiler made " * 40


def violations(count: int, folder: Path, rng: random.Random) -> list[str]:
    """Damage a cache `count` times and use it; one line for each use that gave something else than before."""
    return [line for line in (_attempt(folder / "cache", rng) for _ in range(count)) if line]


def _attempt(cache: Path, rng: random.Random) -> str:
    """The broken rule in one line, or "": the same content as from an empty cache, or LabError."""
    shutil.rmtree(cache, ignore_errors=True)
    weights, seed = cache / "weights", rng.randrange(1000)
    truth = load("synthetic", MODEL, None, weights, seed)[2].flat.clone()
    cached(cache / "kernels" / "kernel.o", lambda: CONTENT)
    victim = rng.choice([path for path in sorted(cache.rglob("*")) if path.is_file()])
    name = rng.choice(sorted(DAMAGE))
    DAMAGE[name](rng, victim)
    try:
        again = load("synthetic", MODEL, None, weights, seed)[2].flat
        made = cached(cache / "kernels" / "kernel.o", lambda: CONTENT)
    except LabError:
        return ""
    except Exception as error:  # any escaping exception is a finding
        return f"cache: {name} of {victim.name}: {type(error).__name__}: {error}"
    right = torch.equal(truth.view(torch.int16), again.view(torch.int16)) and made == CONTENT
    return "" if right else f"cache: {name} of {victim.name}: other content, silently"


def _flip(rng: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def _cut(rng: random.Random, file: Path) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def _longer(rng: random.Random, file: Path) -> None:
    file.write_bytes(file.read_bytes() + rng.randbytes(rng.randint(1, 64)))


def _swap(rng: random.Random, file: Path) -> None:
    """Two halves in the wrong order: the right size, the right bytes."""
    content = file.read_bytes()
    half = rng.randrange(1, len(content))
    file.write_bytes(content[half:] + content[:half])


def _replace(make: Callable[[Path], None]) -> Callable[[random.Random, Path], None]:
    def damage(rng: random.Random, file: Path) -> None:
        file.unlink()
        make(file)

    return damage


DAMAGE: dict[str, Callable[[random.Random, Path], None]] = {
    "a flipped bit": _flip,
    "cut off": _cut,
    "bytes after the end": _longer,
    "halves swapped": _swap,
    "empty": _replace(lambda file: file.touch()),
    "gone": _replace(lambda file: None),
    "a folder in its place": _replace(lambda file: file.mkdir()),
    "a link to nowhere": _replace(lambda file: file.symlink_to(file.parent / "nowhere")),
    "a link to itself": _replace(lambda file: file.symlink_to(file)),
    "a FIFO in its place": _replace(lambda file: os.mkfifo(file)),
}

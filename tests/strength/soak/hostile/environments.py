"""Environments that a command may be started in, each with a mistake that must still be explained."""

import random
from collections.abc import Iterator, Mapping, Sequence

from tests.strength.soak.hostile.attempt import Case

NOWHERE = "/nonexistent/folder"
ENVIRONMENTS: Mapping[str, Mapping[str, str | None]] = {
    "no HOME": {"HOME": None, "XDG_CACHE_HOME": None},
    "HOME that does not exist": {"HOME": NOWHERE, "XDG_CACHE_HOME": None},
    "HOME is a file": {"HOME": "/dev/null", "XDG_CACHE_HOME": None},
    "cache home that does not exist": {"XDG_CACHE_HOME": NOWHERE},
    "no PATH": {"PATH": ""},
    "no TMPDIR": {"TMPDIR": NOWHERE},
    "C locale": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "Latin-1 streams": {"PYTHONIOENCODING": "latin-1"},
    "one column": {"COLUMNS": "1"},
    "no columns": {"COLUMNS": "0"},
    "columns that are no number": {"COLUMNS": "wide"},
    "dumb terminal": {"TERM": "dumb"},
    "no terminal type": {"TERM": None},
    "forced colors": {"FORCE_COLOR": "1"},
    "GPUs that do not exist": {"CUDA_VISIBLE_DEVICES": "-1,99,GPU-nope"},
    "Hydra's full errors": {"HYDRA_FULL_ERROR": "1"},
    "no threads": {"OMP_NUM_THREADS": "0"},
    "optimized Python": {"PYTHONOPTIMIZE": "2"},
    "development mode": {"PYTHONDEVMODE": "1"},
    "hash seed": {"PYTHONHASHSEED": "0"},
    "no bytecode": {"PYTHONDONTWRITEBYTECODE": "1"},
    "time zone that does not exist": {"TZ": "Nowhere/Town"},
}
MISTAKES = (
    "variant=no_such_variant",
    "weights=/nonexistent/checkpoint",
    "threads=33",
    "model=no_such_model",
    "timing.steps=0",
    "results=/dev/null/records.jsonl",
)


def environments(rng: random.Random, fixed: Sequence[str]) -> Iterator[Case]:
    """A hostile environment and a mistake: the mistake must be named in any environment."""
    while True:
        name, mistake = rng.choice(sorted(ENVIRONMENTS)), rng.choice(MISTAKES)
        key = mistake.partition("=")[0].partition(".")[0]
        words = [word for word in (*fixed, "variant=baseline") if word.partition("=")[0].partition(".")[0] != key]
        yield Case(f"{name}, {mistake}", (*words, mistake), environment=ENVIRONMENTS[name])

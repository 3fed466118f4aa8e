"""Stores with one damaged line, and the commands that read stores."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common.record.store import SCHEMA
from tests.strength.soak.hostile.attempt import Attempt, Case, attempt
from tests.whole_rows import RUN

GOOD = 2  # undamaged records beside the damaged one
WRONG: tuple[Any, ...] = (None, True, -1, 1e308, "", "text", [], {}, [[]], {"": {}})
Damage = Callable[[random.Random, dict[str, Any]], bytes]


def store_lines(rng: random.Random, folder: Path) -> Iterator[tuple[Case, bool]]:
    """A command that reads a store with one damaged line in `folder`, and whether that line is still a record."""
    whole = RUN | {"schema": SCHEMA, "time": "2026-11-27T00:00:00+00:00"}
    rows = [whole | {"id": f"20261127T000000-{number:010x}"} for number in range(GOOD + 1)]
    file = folder / "records.jsonl"
    while True:
        name = rng.choice(sorted(DAMAGE))
        good, bad = rng.sample(rows, GOOD), dict(rng.choice(rows))
        id_ = bad["id"]  # the damage may take it away
        content = DAMAGE[name](rng, bad)
        lines = [json.dumps(row).encode() for row in good]
        lines.insert(rng.randint(0, GOOD), content)
        for path in folder.glob("records*"):
            path.unlink()
        file.write_bytes(b"\n".join(lines) + b"\n")
        module, argv = rng.choice(
            [
                ("experiments.show", ()),
                ("experiments.show", ("id=last",)),
                ("experiments.show", (f"id={id_}",)),
                ("experiments", ("device=ptx", f"reproduce={id_}")),
            ]
        )
        yield Case(f"store line: {name}", (*argv, f"results={file}"), module), _is_record(content)


def violations(count: int, folder: Path, rng: random.Random) -> list[str]:
    """Attempt `count` of them; one line for each that ends in a traceback, loses a line or hides a damaged one.

    The rule: exit code 0, or 2 with one error line; no traceback; the store unchanged; and a line that is no record is
    named in a note or an error.
    """
    found, cases = [], store_lines(rng, folder)
    for _ in range(count):
        case, is_record = next(cases)
        broken = _broken(attempt(case, folder), is_record)
        found += [f"{case.module} {case.title}: {broken}"] if broken else []
    return found


def _broken(done: Attempt, is_record: bool) -> str:
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    changed = [name for name in done.changed if not name.endswith(".corrupt")]
    faults = [
        ("Traceback" in done.err, "a traceback"),
        (done.code not in (0, 1, 2), f"exit code {done.code}"),
        (done.code == 2 and len(errors) != 1, f"{len(errors)} error lines"),
        (bool(changed), f"changed {', '.join(changed)}"),
        (not is_record and not done.err.strip(), "silent about a line that is no record"),
    ]
    broken = "; ".join(text for wrong, text in faults if wrong)
    return f"{broken}: {done.err[-300:]!r}" if broken else ""


def _is_record(content: bytes) -> bool:
    """True if the line is JSON with what every record needs to be listed."""
    try:
        row = json.loads(content)
        return isinstance(row["id"], str) and isinstance(row["schema"], int)
    except (ValueError, KeyError, TypeError):
        return False


def _line(row: Any) -> bytes:
    return json.dumps(row).encode()


def _without(rng: random.Random, row: dict[str, Any]) -> bytes:
    del row[rng.choice(sorted(row))]
    return _line(row)


def _other_type(rng: random.Random, row: dict[str, Any]) -> bytes:
    return _line(row | {rng.choice(sorted(row)): rng.choice(WRONG)})


def _nested(rng: random.Random, row: dict[str, Any]) -> bytes:
    """A field of a field is gone or of another type."""
    name = rng.choice([key for key, value in row.items() if isinstance(value, dict) and value])
    inner = dict(row[name])
    key = rng.choice(sorted(inner))
    if rng.random() < 0.5:
        del inner[key]
    else:
        inner[key] = rng.choice(WRONG)
    return _line(row | {name: inner})


DAMAGE: dict[str, Damage] = {
    "a field is missing": _without,
    "a field of another type": _other_type,
    "a field inside a field": _nested,
    "cut off": lambda rng, row: _line(row)[: rng.randrange(1, 2000)],
    "bytes that are no text": lambda rng, row: rng.randbytes(rng.randrange(1, 200)).replace(b"\n", b"?"),
    "JSON of another kind": lambda rng, row: _line(rng.choice([3, None, [], "text", True, [row]])),
    "a newer schema": lambda rng, row: _line(row | {"schema": SCHEMA + 1}),
    "a schema that never was": lambda rng, row: _line(row | {"schema": rng.choice([0, -1, 1.5, "2", None])}),
    "a flipped byte": lambda rng, row: _flipped(rng, _line(row)),
}


def _flipped(rng: random.Random, line: bytes) -> bytes:
    at = rng.randrange(len(line))
    return (line[:at] + bytes([line[at] ^ 1 << rng.randrange(7)]) + line[at + 1 :]).replace(b"\n", b"?")

"""Mutants: small edits of the flattened sources, listed in tests/mutants/*.yaml, each a fault somebody could make."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from common.catalog import BASELINE, ROOT, read_catalog
from common.errors import LabError
from common.model import Model
from common.source import Source, build
from common.stack import choose_stacks

FOLDER = ROOT / "tests" / "mutants"
EXPECTATIONS = ("killed", "equivalent", "survives", "thread")

# Sizes that are no power of two, rows longer than a warp loads at once, more query heads to a KV head than there are KV
# heads, a theta of its own, an LM head of its own.
MODEL = Model("mutants", 136, 200, 2, 6, 2, 24, 251, 48, 5e5, 1e-6, False)


@dataclass(frozen=True)
class Edit:
    """`old` stands `of` times in the text of `file` and becomes `new`: all of them, or the `nth` alone (from 1)."""

    file: str
    old: str
    new: str
    nth: int | None = None
    of: int = 1


@dataclass(frozen=True)
class Mutant:
    """One fault.

    kind    its class in the table; `area` groups classes
    stack   innermost first, on blocks of `threads`, with `knobs` where not the default
    expect  killed; equivalent: computes the same, and `reason` says why; survives: wrong, unnoticed, `reason` says why;
            thread: only ThreadSanitizer sees it
    hangs   every launch of it on several blocks waits in vain
    """

    name: str
    kind: str
    area: str
    stack: tuple[str, ...]
    edits: tuple[Edit, ...]
    threads: int = 128
    knobs: Mapping[str, Any] = field(default_factory=dict)
    expect: str = "killed"
    reason: str = ""
    hangs: bool = False


def read_mutants(folder: Path = FOLDER) -> tuple[Mutant, ...]:
    """Every mutant listed in `folder`, file by file. Raises LabError when one is incomplete or a name stands twice."""
    found = [_mutant({**group, **entry}) for file in sorted(folder.glob("*.yaml")) for group, entry in _entries(file)]
    names = [(mutant.kind, mutant.name, mutant.stack) for mutant in found]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"two mutants are called {name[0]}: {name[1]}", "give each a name of its own")
    return tuple(found)


def _entries(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for group in yaml.safe_load(file.read_text()):
        shared = {key: value for key, value in group.items() if key != "mutants"}
        yield from ((shared, entry) for entry in group["mutants"])


def _mutant(entry: Mapping[str, Any]) -> Mutant:
    known = {each.name for each in (*fields(Mutant), *fields(Edit))} - {"kind"} | {"class"}
    for key in entry.keys() - known:  # an unquoted comma begins one
        raise LabError(f"mutant {entry.get('name')} has a key {key!r}", f"known: {', '.join(sorted(known))}")
    edits = entry.get("edits", [entry])
    mutant = Mutant(
        name=entry["name"],
        kind=entry["class"],
        area=entry["area"],
        stack=tuple(entry.get("stack", ())),
        edits=tuple(Edit(entry["file"], e["old"], e["new"], e.get("nth"), e.get("of", 1)) for e in edits),
        threads=entry.get("threads", 128),
        knobs=entry.get("knobs", {}),
        expect=entry.get("expect", "killed"),
        reason=entry.get("reason", ""),
        hangs=entry.get("hangs", False),
    )
    if mutant.expect not in EXPECTATIONS or (mutant.expect != "killed" and not mutant.reason):
        raise LabError(f"mutant {mutant.name}: expect {mutant.expect}", "killed, or another one with a reason")
    return mutant


def source_of(mutant: Mutant, model: Model = MODEL) -> Source:
    """The flattened source with the mutant's edits. Raises LabError when the text to edit is not there."""
    catalog = read_catalog()
    warps = mutant.threads // 32
    given = {"warp_split": {"ratio": f"1:{warps - 1}"}, "split_kv": {"chunk": 16}}
    knobs = {key: value for name in mutant.stack for key, value in given.get(name, {}).items()} | dict(mutant.knobs)
    stack = choose_stacks(catalog, BASELINE, list(mutant.stack), knobs, mutant.threads)[0]
    source = build([catalog.variants[name] for name in stack.variants], model, mutant.threads, stack.knobs)
    text = source.text
    for edit in mutant.edits:
        text = apply(text, edit, mutant.name)
    return replace(source, text=text)


def apply(text: str, edit: Edit, name: str) -> str:
    """`text` with one edit made; every part that came from the edit's file counts."""
    parts = re.findall(rf'^#line \d+ "{edit.file}"\n(?:(?!#line ).*\n)*', text, re.MULTILINE)
    pieces = "\0".join(parts).split(edit.old)
    if len(pieces) - 1 != edit.of:
        raise LabError(
            f"mutant {name}: {edit.file} says {edit.old!r} {len(pieces) - 1} times, not {edit.of}",
            "write the mutant anew for what the source says now",
        )
    chosen = range(1, edit.of + 1) if edit.nth is None else (edit.nth,)
    changed = pieces[0]
    for number, piece in enumerate(pieces[1:], 1):
        changed += (edit.new if number in chosen else edit.old) + piece
    for part, new in zip(parts, changed.split("\0"), strict=True):
        text = text.replace(part, new, 1)
    return text

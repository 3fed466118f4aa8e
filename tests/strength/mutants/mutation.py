"""Mutants: small edits of the flattened CUDA sources, listed in faults/*.yaml; each is a plausible mistake."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from common.compile.source import Source, build
from common.errors import LabError
from common.model.shapes import Model
from common.model.stages import STAGES
from common.stacks.catalog import BASELINE, read_catalog
from common.stacks.stack import Stack, choose_stacks

FOLDER = Path(__file__).resolve().parent / "faults"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML with libyaml takes a tenth of the time
EXPECTATIONS = ("killed", "race", "equivalent")
# Sizes that are no power of two, rows longer than one load of a warp, more query heads per KV head than KV heads,
# another theta, and an untied LM head.
MODEL = Model("mutants", 136, 200, 2, 6, 2, 24, 251, 48, 5e5, 1e-6, False)


@dataclass(frozen=True)
class Edit:
    """Replacement of `old`, which occurs `of` times in `file`, by `new`: all occurrences, or the `nth` (from 1)."""

    file: str
    old: str
    new: str
    nth: int | None = None
    of: int = 1


@dataclass(frozen=True)
class Mutant:
    """One deliberate fault.

    kind    its class in the table; area: its list, or `operators`
    stack   innermost first, on blocks of `threads` threads, with `knobs` that differ from the defaults
    sizes   of its model that differ from MODEL
    trial   name of the trial that must find it, in place of the grids
    expect  killed: the validator finds it; race: only the race detector does; equivalent: no run can show it
    reason  why, unless `expect` is killed
    hangs   every launch on several blocks deadlocks
    """

    name: str
    kind: str
    area: str
    stack: tuple[str, ...]
    edits: tuple[Edit, ...]
    threads: int = 128
    knobs: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=dict)
    trial: str = ""
    expect: str = "killed"
    reason: str = ""
    hangs: bool = False

    @property
    def model(self) -> Model:
        return replace(MODEL, **self.sizes)


@cache
def read_mutants() -> tuple[Mutant, ...]:
    """All mutants listed in FOLDER. Raises LabError for an unknown key, a missing reason or a repeated name."""
    found = [_mutant({**group, **entry}) for file in sorted(FOLDER.glob("*.yaml")) for group, entry in _entries(file)]
    names = [(mutant.kind, mutant.name, mutant.stack) for mutant in found]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"two mutants are called {name[0]}: {name[1]}", "give each a name of its own")
    return tuple(found)


def sample(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """`size` of the mutants, drawn at random: one of each class first; all of them if there are fewer."""
    order = random.Random(seed).sample(mutants, len(mutants))
    first = {mutant.kind: mutant for mutant in reversed(order)}.values()
    return [*first, *(mutant for mutant in order if mutant not in first)][:size]


def _entries(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for group in yaml.load(file.read_text(), LOADER):
        shared = {"area": file.stem} | {key: value for key, value in group.items() if key != "mutants"}
        yield from ((shared, each) for entry in group["mutants"] for each in _each_stage(entry))


def _each_stage(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """`entry`; with `each: stage` one entry per stage that another one follows, its name in place of {stage}."""
    rest = {key: value for key, value in entry.items() if key != "each"}
    for stage in STAGES[:-1] if "each" in entry else ("",):
        yield {key: value.replace("{stage}", stage) if stage else value for key, value in rest.items()}


def _mutant(entry: Mapping[str, Any]) -> Mutant:
    edit_keys, own = {each.name for each in fields(Edit)}, {each.name for each in fields(Mutant)} - {"kind"}
    for key in entry.keys() - edit_keys - own - {"class"}:  # such as the text after an unquoted comma
        raise LabError(f"mutant {entry.get('name')} has a key {key!r}", f"known: {', '.join(sorted(own | edit_keys))}")
    stack = tuple(entry.get("stack", ()))
    file = entry.get("file") or f"variants/{stack[-1]}.cu"
    edits = [{key: one[key] for key in edit_keys & one.keys()} | {"file": file} for one in entry.get("edits", [entry])]
    named = {"name": " ".join(f"{file}: {edits[0].get('old')} -> {edits[0].get('new')}".split())}
    given = named | {key: entry[key] for key in own & entry.keys()}
    mutant = Mutant(**given | {"kind": entry["class"], "stack": stack, "edits": tuple(Edit(**one) for one in edits)})
    if mutant.expect not in EXPECTATIONS or (mutant.expect != "killed" and not mutant.reason):
        remedy = f"choose from {', '.join(EXPECTATIONS)}; all but killed need a reason"
        raise LabError(f"mutant {mutant.name}: expect {mutant.expect}", remedy)
    return mutant


def source_of(mutant: Mutant) -> Source:
    """The flattened source with the mutant's edits. Raises LabError when the source lacks the text to edit."""
    catalog, stack = read_catalog(), stack_of(mutant)
    source = build([catalog.variants[name] for name in stack.variants], mutant.model, mutant.threads, stack.knobs)
    return replace(source, text=edited(source.text, mutant))


def stack_of(mutant: Mutant) -> Stack:
    """The mutant's stack, with knobs at which its variants do their own thing on small models."""
    warps = mutant.threads // 32
    short = {"chunk": 16}
    given: dict[str, dict[str, Any]] = {
        "warp_split": {"ratio": f"1:{warps - 1}"},
        "split_kv": short,
        "stream_kv": short,
    }
    knobs = {key: value for name in mutant.stack for key, value in given.get(name, {}).items()} | dict(mutant.knobs)
    return choose_stacks(read_catalog(), BASELINE, list(mutant.stack), knobs, mutant.threads)[0]


def edited(text: str, mutant: Mutant) -> str:
    """The flattened text with the mutant's edits. Raises LabError when it lacks what they replace."""
    for edit in mutant.edits:
        text = apply(text, edit, mutant.name)
    return text


def apply(text: str, edit: Edit, name: str) -> str:
    """`text` after one edit, made in all parts that `#line` assigns to the edit's file. Raises LabError."""
    parts = re.findall(rf'^#line \d+ "{edit.file}"\n(?:(?!#line ).*\n)*', text, re.MULTILINE)
    pieces = "\0".join(parts).split(edit.old)
    if len(pieces) - 1 != edit.of:
        raise LabError(
            f"mutant {name}: {edit.file} has {edit.old!r} {len(pieces) - 1} times, not {edit.of}",
            "adapt the mutant to the changed source",
        )
    chosen = range(1, edit.of + 1) if edit.nth is None else (edit.nth,)
    changed = pieces[0]
    for number, piece in enumerate(pieces[1:], 1):
        changed += (edit.new if number in chosen else edit.old) + piece
    for part, new in zip(parts, changed.split("\0"), strict=True):
        text = text.replace(part, new, 1)
    return text

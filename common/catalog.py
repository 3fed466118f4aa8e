"""What there is to run: every variant and every named stack, found by file name.

`variants/<name>.cu` with `conf/variant/<name>.yaml` is a variant; a yaml with `variant.stack` and no source is a
named stack; one with `variant.selects` is a selection (`all`, `best`). Nothing else has to be edited to add one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError

from common.errors import LabError
from common.knobs import KINDS, SETS, WARP, Knob

ROOT = Path(__file__).resolve().parents[1]
BASELINE = "baseline"
SELECTS = ("every", "best")
LAUNCHES = ("cooperative", "plain", "graph", "launches")


@dataclass(frozen=True)
class Variant:
    """One optimization: its source, what it claims, and what it needs.

    parent     the stack it is composed on and compared with, innermost first; () is the baseline
    overrides  the stages it changes
    min_arch   lowest compute capability, ten times: 80 for 8.0
    excludes   variants that cannot be in the same stack; requires: variants that must be
    bit_equal  its results must equal its parent's bit for bit; else `why_not_bit_equal` gives the reason
    mixin      the C++ struct in `file`
    """

    name: str
    file: Path
    idea: str
    hypothesis: str
    overrides: tuple[str, ...]
    parent: tuple[str, ...]
    knobs: tuple[Knob, ...]
    launch: str
    min_arch: int
    bit_equal: bool
    why_not_bit_equal: str
    published: str
    excludes: tuple[str, ...]
    requires: tuple[str, ...]
    mixin: str


@dataclass(frozen=True)
class NamedStack:
    """A list of variants with a name, innermost first, and the knob values that go with it."""

    name: str
    idea: str
    variants: tuple[str, ...]
    parent: tuple[str, ...]
    knobs: Mapping[str, Any]
    published: str


@dataclass(frozen=True)
class Selection:
    """A name for what is chosen when a run starts.

    selects  every: all variants; best: the stack that the records say is fastest on this GPU, until then `default`
    """

    name: str
    selects: str
    default: str


@dataclass(frozen=True)
class Catalog:
    """Everything below one root.

    broken  what is wrong with a variant or stack that cannot be used; the others can
    keys    what a run's configuration has at its top level, apart from knobs
    """

    root: Path
    variants: Mapping[str, Variant]
    stacks: Mapping[str, NamedStack]
    selections: Mapping[str, Selection]
    broken: Mapping[str, LabError]
    keys: frozenset[str]

    @property
    def knobs(self) -> frozenset[str]:
        """Names of all knobs of all variants."""
        return frozenset(knob.name for variant in self.variants.values() for knob in variant.knobs)

    def takers(self, knob: str) -> list[str]:
        """Names of the variants that take `knob`."""
        return [name for name, variant in self.variants.items() if knob in {k.name for k in variant.knobs}]


def variants(root: Path = ROOT) -> dict[str, Variant]:
    """Every sound variant below `root`, baseline first, then by name."""
    return dict(read_catalog(root).variants)


@cache
def read_catalog(root: Path = ROOT) -> Catalog:
    """Read all of conf/variant/ and variants/ below `root`. A file that is wrong costs only its own name."""
    names = {path.stem for path in (*(root / "variants").glob("*.cu"), *(root / "conf" / "variant").glob("*.yaml"))}
    keys = _config_keys(root)
    found: dict[str, Variant] = {}
    stacks: dict[str, NamedStack] = {}
    selections: dict[str, Selection] = {}
    broken: dict[str, LabError] = {}
    for name in sorted(names, key=lambda name: (name != BASELINE, name)):
        try:
            entry = _Entry(name, root)
            if entry.source.exists():
                found[name] = entry.variant(names, keys)
            elif "stack" in entry.fields:
                stacks[name] = entry.stack(names)
            elif "selects" in entry.fields:
                selections[name] = entry.selection(names)
            else:
                raise entry.wrong(f"has neither variants/{name}.cu nor a `stack`", "add the source or the list")
        except LabError as error:
            broken[name] = error
    return Catalog(root, found, stacks, selections, broken, keys)


def _config_keys(root: Path) -> frozenset[str]:
    """Top-level keys of conf/config.yaml and the groups that its defaults list names."""
    conf = root / "conf"
    top = OmegaConf.load(conf / "config.yaml")
    groups = (str(group) for entry in top.defaults if not isinstance(entry, str) for group in entry)
    return frozenset(map(str, top.keys() - {"defaults", "hydra"})) | {group for group in groups if " " not in group}


class _Entry:
    """One yaml of conf/variant/: `fields` is its `variant` block, `values` the knob values beside it."""

    def __init__(self, name: str, root: Path) -> None:
        self.source = root / "variants" / f"{name}.cu"
        self.path = Path("conf") / "variant" / f"{name}.yaml"
        try:
            text = (root / self.path).read_text(encoding="utf-8")
            data = OmegaConf.to_container(OmegaConf.create(text))
        except FileNotFoundError:
            raise LabError(f"variants/{name}.cu has no {self.path}", "add the yaml, or remove the source") from None
        except YAMLError as error:
            raise self.wrong(f"is not YAML: {error}", "correct it") from None
        if not text.startswith("# @package _global_\n"):
            raise self.wrong("does not start with `# @package _global_`", "make that its first line")
        self.fields = data.pop("variant", None) if isinstance(data, dict) else None
        if not isinstance(self.fields, dict):
            raise self.wrong("has no `variant` block", "describe the variant in one")
        self.values: dict[str, Any] = data
        if (said := self.fields.pop("name", None)) != name:
            raise self.wrong(f"says name: {said}", f"write name: {name}, as the file is called")

    def wrong(self, cause: str, remedy: str) -> LabError:
        return LabError(f"{self.path} {cause}", remedy)

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """Remove and return one field; without a default it must be there. Texts are put on one line."""
        value = self.fields.pop(key, default)
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            raise self.wrong(f"says {key}: {value}", f"write a {kind.__name__} for {key}")
        return " ".join(value.split()) if isinstance(value, str) else value

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(map(str, self.take(key, list, [])))

    def finish(self, mentioned: tuple[str, ...], known: Collection[str]) -> None:
        """Refuse what is left over, and names of variants that do not exist."""
        for name in mentioned:
            if name not in known:
                raise self.wrong(f"names {name}", f"known: {', '.join(sorted(known))}")
        for key in self.fields:
            raise self.wrong(f"has an unknown key variant.{key}", "correct or remove it")

    def variant(self, known: Collection[str], keys: Collection[str]) -> Variant:
        variant = Variant(
            name=self.source.stem,
            file=self.source,
            idea=self.take("idea", str),
            hypothesis=self.take("hypothesis", str),
            overrides=self.names("overrides"),
            parent=self.names("parent"),
            knobs=self.knobs(keys),
            launch=self.take("launch", str, LAUNCHES[0]),
            min_arch=self.take("min_arch", int),
            bit_equal=self.take("bit_equal", bool, True),
            why_not_bit_equal=self.take("why_not_bit_equal", str, ""),
            published=self.take("published", str, ""),
            excludes=self.names("excludes"),
            requires=self.names("requires"),
            mixin="".join(part.capitalize() for part in self.source.stem.split("_")),
        )
        self.finish((*variant.parent, *variant.excludes, *variant.requires), known)
        if variant.launch not in LAUNCHES:
            raise self.wrong(f"says launch: {variant.launch}", f"choose from {', '.join(LAUNCHES)}")
        if variant.bit_equal == bool(variant.why_not_bit_equal):
            raise self.wrong("says bit_equal and why_not_bit_equal", "write one: true, or false with the reason")
        return variant

    def stack(self, known: Collection[str]) -> NamedStack:
        stack = NamedStack(
            name=self.path.stem,
            idea=self.take("idea", str),
            variants=self.names("stack"),
            parent=self.names("parent"),
            knobs=self.values,
            published=self.take("published", str, ""),
        )
        self.finish((*stack.variants, *stack.parent), known)
        return stack

    def selection(self, known: Collection[str]) -> Selection:
        selection = Selection(self.path.stem, self.take("selects", str), self.take("default", str, ""))
        if selection.selects not in SELECTS:
            raise self.wrong(f"says selects: {selection.selects}", f"choose from {', '.join(SELECTS)}")
        if (selection.selects == "best") != bool(selection.default):
            raise self.wrong(f"says default: {selection.default}", "name a variant or a stack, with selects: best only")
        self.finish((selection.default,) if selection.default else (), known)
        return selection

    def knobs(self, keys: Collection[str]) -> tuple[Knob, ...]:
        specs = self.take("knobs", dict, {})
        for name in sorted(keys & specs.keys()):
            raise self.wrong(f"has a knob named {name}, a key of every run", "rename it")
        for name in sorted(specs.keys() ^ self.values.keys()):
            raise self.wrong(
                f"has no default or no entry for the knob {name}", "give it both: a top-level value, a spec"
            )
        knobs = tuple(self.knob(name, spec) for name, spec in specs.items())
        names = [constant for knob in knobs for constant in knob.constants(knob.default, 8 * WARP)]
        if len(set(names)) < len(names):
            raise self.wrong(f"has knobs that make one constant twice: {', '.join(names)}", "rename one")
        return knobs

    def knob(self, name: str, spec: dict[str, Any]) -> Knob:
        try:
            spec = spec | {"choices": tuple(spec.get("choices", ()))}
            knob = Knob(name=name, default=self.values[name], **spec)
            if knob.sets not in SETS:
                raise TypeError(f"sets {knob.sets}")
            if knob.kind not in KINDS or bool(knob.choices) != (knob.kind in ("choice", "list")):
                raise TypeError(f"kind {knob.kind} with choices {list(knob.choices)}")
            knob.constants(knob.default, 8 * WARP)
        except TypeError as error:
            raise self.wrong(f"knob {name}: {error}", f"give kind ({', '.join(KINDS)}), help, and its range") from None
        except LabError as error:
            raise self.wrong(f"default: {error.cause}", error.remedy) from None
        return knob

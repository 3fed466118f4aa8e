"""The catalog of variants, named stacks and selections, found by file name.

`variants/<name>.cu` with `conf/variant/<name>.yaml` is a variant; a yaml with `stack` and no source is a named stack; a
yaml with `selects` is a selection (`all`, `best`). Nothing else has to be edited to add one. The header
of the source states what a variant does (`common.stacks.header`); the yaml states what the lab needs to run it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError

from common import ROOT
from common.errors import LabError
from common.model.layout import REGIONS
from common.stacks.header import read_header
from common.stacks.knobs import KINDS, SETS, WARP, Knob
from common.stacks.work import Work, read_work

BASELINE = "baseline"
TUNED = "tuned_"  # begins the name of a named stack that a search has written
SELECTS = ("every", "catalog", "best")
LOWEST_ARCH = 75  # the oldest that the compiler supports
LAUNCHES = ("cooperative", "plain", "graph", "launches")


@dataclass(frozen=True)
class Variant:
    """One optimization: its source, its claim, and its needs.

    idea, hypothesis, overrides, run   see `common.stacks.header.Header`
    parent     the stack it is composed on and compared with, innermost first; () is the baseline
    launch     one of LAUNCHES; see `common.compile.source.Source`
    min_arch   lowest compute capability, ten times: 80 for 8.0
    loader_warps  of a block, beside the threads that compute
    why_not_bit_equal  the reason why its results may differ from its parent's in the last bits; "": they must not
    published  the effect that others have published
    excludes   variants that cannot be in the same stack; requires: variants that must be
    outside    variants that must stand before it in the stack, where they are in it
    regions    of scratch that only the stacks which ask for them declare: see `common.model.layout`
    work       for the prediction: see `common.stacks.work`
    """

    name: str
    file: Path
    idea: str
    hypothesis: str
    overrides: tuple[str, ...]
    run: str
    parent: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    launch: str = LAUNCHES[0]
    min_arch: int = LOWEST_ARCH
    loader_warps: int = 0
    why_not_bit_equal: str = ""
    published: str = ""
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    work: Work = field(default_factory=dict)

    @property
    def bit_equal(self) -> bool:
        """Whether its results must equal its parent's bit for bit."""
        return not self.why_not_bit_equal

    @property
    def mixin(self) -> str:
        """The C++ struct in `file`: SplitKv for split_kv."""
        return "".join(part.capitalize() for part in self.name.split("_"))


@dataclass(frozen=True)
class NamedStack:
    """A list of variants with a name, innermost first, and the values of their knobs that differ from the defaults.

    tuned  what a search found it to be the fastest for: gpu, model, position and threads; {}: none did
    """

    name: str
    idea: str
    variants: tuple[str, ...]
    parent: tuple[str, ...]
    knobs: Mapping[str, Any]
    published: str
    tuned: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """A name for stacks that are chosen when a run starts.

    selects  every: all variants; catalog: all variants and named stacks; best: what a search found for this GPU, else
             the fastest on it according to the records, else `default`
    """

    name: str
    selects: str
    default: str


@dataclass(frozen=True)
class Catalog:
    """Variants, named stacks and selections below one root.

    broken  the error of each variant or stack that cannot be used; the others can
    keys    the keys at the top level of a run's configuration, apart from knobs
    tuned   named stacks that a search wrote, each for one GPU and block size: no selection of all stacks has them
    """

    root: Path
    variants: Mapping[str, Variant]
    stacks: Mapping[str, NamedStack]
    selections: Mapping[str, Selection]
    broken: Mapping[str, LabError]
    keys: frozenset[str]
    tuned: Mapping[str, NamedStack] = field(default_factory=dict)

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
    tuned: dict[str, NamedStack] = {}
    selections: dict[str, Selection] = {}
    broken: dict[str, LabError] = {}
    for name in sorted(names, key=lambda name: (name != BASELINE, name)):
        try:
            entry = _Entry(name, root)
            if entry.source.exists():
                found[name] = entry.variant(names, keys)
            elif "stack" in entry.fields:
                stack = entry.stack(names)
                (tuned if stack.tuned else stacks)[name] = stack
            elif "selects" in entry.fields:
                selections[name] = entry.selection(names)
            else:
                raise entry.wrong(f"has neither variants/{name}.cu nor a `stack`", "add the source or the list")
        except LabError as error:
            broken[name] = error
    return Catalog(root, found, stacks, selections, broken, keys, tuned)


def _config_keys(root: Path) -> frozenset[str]:
    """Top-level keys of conf/config.yaml and conf/base.yaml, and the groups that their defaults lists name."""
    top = [OmegaConf.load(root / "conf" / name) for name in ("config.yaml", "base.yaml")]
    groups = (str(group) for yaml in top for entry in yaml.defaults if not isinstance(entry, str) for group in entry)
    keys = frozenset(str(key) for yaml in top for key in yaml.keys() - {"defaults", "hydra"})
    return keys | {group for group in groups if " " not in group}


class _Entry:
    """One yaml of conf/variant/. Fields are taken out of `fields` as they are read; none may remain."""

    def __init__(self, name: str, root: Path) -> None:
        self.source = root / "variants" / f"{name}.cu"
        self.path = Path("conf") / "variant" / f"{name}.yaml"
        try:
            text = (root / self.path).read_text(encoding="utf-8")
            fields: Any = OmegaConf.to_container(OmegaConf.create(text))
        except FileNotFoundError:
            raise LabError(f"variants/{name}.cu has no {self.path}", "add the yaml, or remove the source") from None
        except YAMLError as error:
            raise self.wrong(f"is not YAML: {error}", "correct it") from None
        if not isinstance(fields, dict):
            raise self.wrong("is not a mapping", f"begin it with name: {name}")
        if text.startswith("# @package"):
            raise self.wrong("has an @package line", "remove it; its keys stand at the top level of the file")
        self.fields: dict[str, Any] = fields
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

    def regions(self) -> tuple[str, ...]:
        for region in (names := self.names("regions")):
            if region not in REGIONS:
                raise self.wrong(f"asks for the region {region}", f"choose from {', '.join(REGIONS)}")
        return names

    def finish(self, mentioned: tuple[str, ...], known: Collection[str]) -> None:
        """Refuse what is left over, and names of variants that do not exist."""
        for name in mentioned:
            if name not in known:
                raise self.wrong(f"names {name}", f"known: {', '.join(sorted(known))}")
        for key in self.fields:
            raise self.wrong(f"has an unknown key {key}", "correct or remove it")

    def variant(self, known: Collection[str], keys: Collection[str]) -> Variant:
        header, knobs = read_header(self.source), self.knobs(keys)
        variant = Variant(
            name=self.source.stem,
            file=self.source,
            **vars(header),
            parent=self.names("parent"),
            knobs=knobs,
            launch=self.take("launch", str, LAUNCHES[0]),
            min_arch=self.take("min_arch", int, LOWEST_ARCH),
            loader_warps=self.take("loader_warps", int, 0),
            why_not_bit_equal=self.take("why_not_bit_equal", str, ""),
            published=self.take("published", str, ""),
            excludes=self.names("excludes"),
            requires=self.names("requires"),
            outside=self.names("outside"),
            regions=self.regions(),
            work=self.work(knobs),
        )
        self.finish((*variant.parent, *variant.excludes, *variant.requires, *variant.outside), known)
        if variant.launch not in LAUNCHES:
            raise self.wrong(f"says launch: {variant.launch}", f"choose from {', '.join(LAUNCHES)}")
        return variant

    def stack(self, known: Collection[str]) -> NamedStack:
        stack = NamedStack(
            name=self.path.stem,
            idea=self.take("idea", str),
            variants=self.names("stack"),
            parent=self.names("parent"),
            knobs=self.take("knobs", dict, {}),
            published=self.take("published", str, ""),
            tuned=self.take("tuned", dict, {}),
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

    def work(self, knobs: tuple[Knob, ...]) -> Work:
        try:
            return read_work(self.take("work", dict, {}), _constants(knobs))
        except LabError as error:
            raise self.wrong(error.cause, error.remedy) from None

    def knobs(self, keys: Collection[str]) -> tuple[Knob, ...]:
        specs = self.take("knobs", dict, {})
        for name in sorted(keys & specs.keys()):
            raise self.wrong(f"has a knob named {name}, a key of every run", "rename it")
        knobs = tuple(self.knob(name, spec) for name, spec in specs.items())
        names = _constants(knobs)
        if len(set(names)) < len(names):
            raise self.wrong(f"has knobs that make one constant twice: {', '.join(names)}", "rename one")
        return knobs

    def knob(self, name: str, spec: dict[str, Any]) -> Knob:
        try:
            if not isinstance(spec, dict):
                raise TypeError(f"is {spec}")
            knob = Knob(name=name, **(spec | {"choices": tuple(spec.get("choices", ()))}))
            if knob.sets not in SETS:
                raise TypeError(f"sets {knob.sets}")
            if knob.kind not in KINDS or bool(knob.choices) != (knob.kind in ("choice", "list")):
                raise TypeError(f"kind {knob.kind} with choices {list(knob.choices)}")
            knob.constants(knob.default, 8 * WARP)
        except TypeError as error:
            raise self.wrong(
                f"knob {name}: {error}", f"give kind ({', '.join(KINDS)}), default, range and help"
            ) from None
        except LabError as error:
            raise self.wrong(f"knob {name}: default: {error.cause}", error.remedy) from None
        return knob


def _constants(knobs: tuple[Knob, ...]) -> list[str]:
    """Names of the compile-time constants of all knobs of a variant."""
    return [constant for knob in knobs for constant in knob.constants(knob.default, 8 * WARP)]

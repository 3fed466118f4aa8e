"""One yaml of conf/variant/, read as a variant, stack or selection; each error names the file."""

import re
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from yaml import YAMLError

from common.errors import LabError
from common.json_values import from_json
from common.model.scratch import Scratch, read_scratch
from common.model.stages import STAGES
from common.stacks.header import read_header
from common.stacks.knobs import KINDS, SETS, WARP, Knob
from common.stacks.variant import LAUNCHES, SELECTS, NamedStack, Selection, Variant

MENTIONS = ("parent", "variants", "excludes", "requires", "outside")  # lists of names of variants
T = TypeVar("T", Variant, NamedStack, Selection)


class Entry:
    """One yaml of conf/variant/."""

    def __init__(self, name: str, root: Path) -> None:
        self.root, self.source = root, root / "variants" / f"{name}.cu"
        self.path = Path("conf") / "variant" / f"{name}.yaml"
        try:
            text = (root / self.path).read_text(encoding="utf-8")
            fields: Any = OmegaConf.to_container(OmegaConf.create(text))
        except FileNotFoundError:
            raise LabError(f"variants/{name}.cu has no {self.path}", "add the yaml, or remove the source") from None
        except YAMLError as error:
            raise self.wrong(f"is not YAML: {error}", "correct it") from None
        if not isinstance(fields, dict):
            raise self.wrong("is not a mapping", "write key: value, as docs/add-a-variant.md lists the keys")
        if text.startswith("# @package"):
            raise self.wrong("has an @package line", "remove it; its keys stand at the top level of the file")
        self.fields: dict[str, Any] = fields

    def wrong(self, cause: str, remedy: str) -> LabError:
        return LabError(f"{self.path} {cause}", remedy)

    def read(self, kind: type[T], known: Collection[str], **made: Any) -> T:
        """A dataclass of the yaml's fields and `made`. known: names that it may mention."""
        for key in self.fields.keys() - ({each.name for each in fields(kind)} - made.keys()):
            raise self.wrong(f"has an unknown key {key}", "correct or remove it")
        try:
            found = from_json(kind, self.fields | made)
        except KeyError as error:
            raise self.wrong(f"has no {error.args[0]}", "add it") from None
        except TypeError as error:
            raise self.wrong(f"says {error}", "write a value of that type") from None
        for name in (name for key in MENTIONS for name in getattr(found, key, ())):
            if name not in known:
                raise self.wrong(f"names {name}", f"known: {', '.join(sorted(known))}")
        return found

    def variant(self, known: Collection[str], keys: Collection[str]) -> Variant:
        header, knobs, scratch = read_header(self.source), self.knobs(keys), self.scratch()
        made = {"name": self.path.stem, "file": self.source, **header, "knobs": (), "scratch": scratch}
        variant = replace(self.read(Variant, known, **made), knobs=knobs)
        if variant.launch not in LAUNCHES:
            raise self.wrong(f"says launch: {variant.launch}", f"choose from {', '.join(LAUNCHES)}")
        if unknown := variant.exchanges.keys() - set(STAGES):
            raise self.wrong(f"says exchanges: {', '.join(sorted(unknown))}", f"name stages: {', '.join(STAGES)}")
        if not re.search(rf"\bstruct {variant.mixin}\b", self.source.read_text(encoding="utf-8")):
            cause = f"variants/{variant.name}.cu has no struct {variant.mixin}"
            raise LabError(cause, "name its struct so, or the two files as the struct")
        return variant

    def stack(self, known: Collection[str]) -> NamedStack:
        return self.read(NamedStack, known, name=self.path.stem, variants=self.fields.pop("stack"))

    def selection(self, known: Collection[str]) -> Selection:
        selection = self.read(Selection, known, name=self.path.stem)
        if selection.selects not in SELECTS:
            raise self.wrong(f"says selects: {selection.selects}", f"choose from {', '.join(SELECTS)}")
        if (selection.selects == "steps") != bool(selection.default):
            remedy = "name a variant or a stack, with selects: steps only"
            raise self.wrong(f"says default: {selection.default}", remedy)
        if selection.default not in ("", *known):
            raise self.wrong(f"names {selection.default}", f"known: {', '.join(sorted(known))}")
        return selection

    def section(self, key: str) -> dict[str, Any]:
        """A mapping, removed from the fields; {} if absent."""
        value = self.fields.pop(key, {})
        if not isinstance(value, dict):
            raise self.wrong(f"says {key}: {value}", "write a mapping")
        return value

    def scratch(self) -> Scratch:
        try:
            return read_scratch(self.section("scratch"))
        except LabError as error:
            raise self.wrong(error.cause, error.remedy) from None

    def knobs(self, keys: Collection[str]) -> tuple[Knob, ...]:
        specs = self.section("knobs")
        for name in sorted(keys & specs.keys()):
            raise self.wrong(f"has a knob named {name}, a key of every run", "rename it")
        knobs = tuple(self.knob(name, spec) for name, spec in specs.items())
        names = [constant for knob in knobs for constant in knob.constants(knob.default, 8 * WARP)]
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

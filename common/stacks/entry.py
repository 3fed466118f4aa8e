"""One yaml of conf/variant/, read into what it describes; each mistake in it is an error that names the file."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError

from common.errors import LabError
from common.model.layout import Scratch, read_scratch
from common.stacks.header import read_header
from common.stacks.knobs import KINDS, SETS, WARP, Knob
from common.stacks.variant import LAUNCHES, LOWEST_ARCH, SELECTS, NamedStack, Selection, Variant


class Entry:
    """One yaml of conf/variant/. Fields are taken out of `fields` as they are read; none may remain."""

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

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """Remove and return one field; without a default it must be there. Texts are put on one line."""
        value = self.fields.pop(key, default)
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            raise self.wrong(f"says {key}: {value}", f"write a {kind.__name__} for {key}")
        return " ".join(value.split()) if isinstance(value, str) else value

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(map(str, self.take(key, list, [])))

    def scratch(self) -> Scratch:
        try:
            return read_scratch(self.take("scratch", dict, {}))
        except LabError as error:
            raise self.wrong(error.cause, error.remedy) from None

    def finish(self, mentioned: tuple[str, ...], known: Collection[str]) -> None:
        """Refuse what is left over, and names of variants that do not exist."""
        for name in mentioned:
            if name not in known:
                raise self.wrong(f"names {name}", f"known: {', '.join(sorted(known))}")
        for key in self.fields:
            raise self.wrong(f"has an unknown key {key}", "correct or remove it")

    def variant(self, known: Collection[str], keys: Collection[str]) -> Variant:
        variant = Variant(
            name=self.source.stem,
            file=self.source,
            **read_header(self.source),
            parent=self.names("parent"),
            knobs=self.knobs(keys),
            launch=self.take("launch", str, LAUNCHES[0]),
            min_arch=self.take("min_arch", int, LOWEST_ARCH),
            loader_warps=self.take("loader_warps", int, 0),
            why_not_bit_equal=self.take("why_not_bit_equal", str, ""),
            published=self.take("published", str, ""),
            excludes=self.names("excludes"),
            requires=self.names("requires"),
            outside=self.names("outside"),
            scratch=self.scratch(),
            work=self.take("work", dict, {}),
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
        if (selection.selects in ("best", "steps")) != bool(selection.default):
            remedy = "name a variant or a stack, with selects: best and selects: steps only"
            raise self.wrong(f"says default: {selection.default}", remedy)
        self.finish((selection.default,) if selection.default else (), known)
        return selection

    def knobs(self, keys: Collection[str]) -> tuple[Knob, ...]:
        specs = self.take("knobs", dict, {})
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

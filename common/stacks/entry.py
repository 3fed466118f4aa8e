"""One yaml of conf/variant/, read as a variant, stack or selection; each error names the file."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from common import ROOT
from common.errors import LabError, unknown
from common.json_values import from_json
from common.model.expressions import SHAPES, Scratch, check
from common.model.stages import STAGES
from common.stacks.knobs import KINDS, SETS, WARP, Knob, Target
from common.stacks.variant import LAUNCHES, LOWEST_ARCH, SELECTS, NamedStack, Selection, Variant

IDEA = re.compile(r"// Idea +(\S.*(?:\n//\s{2,}.+)*)")  # a sentence, which may go on in indented lines
NAME = re.compile("[a-z][a-z0-9_]*")  # name of a knob or a region of scratch, and of a constant in C++
MEMBER = re.compile(r"static (?:DEVICE|constexpr) [\w:<>&* ]*?(\w+)(?:\(| =)")  # a function or constant of a struct
OVERRIDES = re.compile(r"^// Overrides +(.*(?:\n//\s{2,}.+)*)", re.MULTILINE)  # names, or `nothing`
MENTIONS = ("parent", "variants", "excludes", "requires", "outside")  # lists of names of variants
REGION_NAMES = (*SHAPES, "max_blocks", "taps")  # in the shape of a region; taps: elements of all layers' taps
TAKEN = ("layers", "rope", "partial", "workspace", "seen", "trace", *STAGES)  # names in scratch
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
        except OSError as error:
            raise self.wrong(f"cannot be read: {error.strerror}", "make it readable") from None
        except (YAMLError, OmegaConfBaseException, ValueError) as error:
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
        others = {*known} - {self.path.stem}
        for key, name in ((each, name) for each in MENTIONS for name in getattr(found, each, ())):
            if name not in others:
                of_name = unknown("variant", name, others)
                raise self.wrong(f"says {key}: {of_name.cause}", of_name.remedy)
        return found

    def variant(self, known: Collection[str], keys: Collection[str]) -> Variant:
        source = "/".join(self.source.parts[-2:])
        try:
            text = self.source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LabError(f"{source} cannot be read: {error}", "restore the file") from error
        if not (idea := IDEA.match(text)):
            raise LabError(f"{source} does not begin with `// Idea`", "say it there, as variants/baseline.cu does")
        said, knobs, scratch = re.sub(r"\n//\s+", " ", idea[1]), self.knobs(keys), self.scratch()
        made = {"file": self.source, "idea": said, "knobs": (), "scratch": scratch, "overrides": {}}
        variant = self.read(Variant, known, name=self.path.stem, **made)
        if variant.launch not in LAUNCHES:
            raise self.wrong(f"says launch: {variant.launch}", f"choose from {', '.join(LAUNCHES)}")
        for key, least in (("min_arch", LOWEST_ARCH), ("loader_warps", 0)):
            if (value := getattr(variant, key)) < least:
                raise self.wrong(f"says {key}: {value}", f"give {least} or more")
        if not re.search(rf"\bstruct {variant.mixin}\b", text):
            remedy = "name its struct so, or the two files as the struct, in small letters, digits and _"
            raise LabError(f"{source} has no struct {variant.mixin}", remedy)
        return replace(variant, knobs=knobs, overrides=self.overrides(text, source))

    def overrides(self, text: str, source: str) -> dict[str, bool]:
        """{member in the header: True if `Base`'s is called}. Raises LabError for one that the struct lacks, and for a
        name that no kernel would use."""
        kernels = (*(ROOT / "common" / "kernel").glob("*.cuh"), *self.source.parent.glob("*.cu"))
        others = frozenset[str]().union(*(_words(path) for path in kernels if path != self.source))
        own = Counter(re.findall(r"\w+", code := re.sub(r"//.*", "", text)))
        names = set(re.findall(r"\w+", "".join(OVERRIDES.findall(text)))) - {"nothing"}
        for name in names:
            if name not in others or name not in own:
                why = "which no other kernel has" if name not in others else "its struct has no such member"
                raise LabError(f"{source} says that it overrides {name}, {why}", "correct the header, or the struct")
        for name in MEMBER.findall(code):
            if own[name] == 1 and name not in others and self.path.stem != "baseline":  # with members for variants
                remedy = "correct its name, as common/kernel/decode.cuh and variants/baseline.cu have it, or remove it"
                raise LabError(f"{source} defines {name}, and no kernel uses it", remedy)
        return {name: bool(re.search(rf"\bBase::(template )?{name}\b", code)) for name in names}

    def stack(self, known: Collection[str]) -> NamedStack:
        return self.read(NamedStack, known, name=self.path.stem, variants=self.fields.pop("stack"))

    def selection(self, known: Collection[str]) -> Selection:
        selection = self.read(Selection, known, name=self.path.stem)
        if selection.selects not in SELECTS:
            raise self.wrong(f"says selects: {selection.selects}", f"choose from {', '.join(SELECTS)}")
        return selection

    def section(self, key: str) -> dict[str, Any]:
        """A mapping, removed from the fields; {} if absent."""
        value = self.fields.pop(key, {})
        if not isinstance(value, dict):
            raise self.wrong(f"says {key}: {value}", "write a mapping")
        return value

    def scratch(self) -> Scratch:
        """Regions of scratch of the variant's own: `parts: [2, layers, heads, 16, head_dim + 4]`, over REGION_NAMES.

        A region has 32-bit words exchanged by flag-in-data: a reset fills them with `layout.NOT_SENT`. Its first size
        is a number of turns, a power of 2, each a step of the kernel (buffers in rotation); a step leaves the next
        turn's words at the sentinel, which validation checks. The other sizes are of one turn.
        """
        regions = self.section("scratch")
        for name, shape in regions.items():
            place = f"scratch.{name}: {shape}"
            if not NAME.fullmatch(str(name)) or name in TAKEN or name.endswith("_size"):
                raise self.wrong(f"has {place}", "give it another name, of small letters")
            if not isinstance(shape, list) or len(shape) < 2:
                raise self.wrong(f"has {place}", "give a list: turns, then the sizes of one turn")
            for size in shape:
                check(str(size), REGION_NAMES, f"{self.path} has {place}")
        return {name: tuple(map(str, shape)) for name, shape in regions.items()}

    def knobs(self, keys: Collection[str]) -> tuple[Knob, ...]:
        specs = self.section("knobs")
        for name in sorted(keys & specs.keys()):
            raise self.wrong(f"has a knob named {name}, a key of every run", "rename it")
        for name in (name for name in specs if not NAME.fullmatch(str(name))):
            raise self.wrong(f"has a knob named {name}", "give it another name, of small letters")
        knobs = tuple(self.knob(name, spec) for name, spec in specs.items())
        for auto in (knob.auto for knob in knobs if knob.auto):
            check(auto, (*SHAPES, *Target._fields, *specs), f"{self.path} says auto: {auto}")
        names = [constant for knob in knobs for constant in knob.constants(knob.default, 8 * WARP)]
        if len(set(names)) < len(names):
            raise self.wrong(f"has knobs that make one constant twice: {', '.join(names)}", "rename one")
        return knobs

    def knob(self, name: str, spec: dict[str, Any]) -> Knob:
        try:
            if not isinstance(spec, dict):
                raise TypeError(f"is {spec}")
            for key in spec.keys() - {each.name for each in fields(Knob)}:
                raise TypeError(f"has an unknown key {key}")
            knob = from_json(Knob, {**spec, "name": name})
            if knob.sets not in SETS:
                raise TypeError(f"sets {knob.sets}")
            if knob.kind not in KINDS or bool(knob.choices) != (knob.kind in ("choice", "list")):
                raise TypeError(f"kind {knob.kind} with choices {list(knob.choices)}")
            knob.constants(knob.default, 8 * WARP)
        except (TypeError, KeyError) as error:
            wrong = f"has no {error.args[0]}" if isinstance(error, KeyError) else error
            remedy = f"give kind ({', '.join(KINDS)}), default, range and help"
            raise self.wrong(f"knob {name}: {wrong}", remedy) from None
        except LabError as error:
            raise self.wrong(f"knob {name}: default: {error.cause}", error.remedy) from None
        return knob


@cache
def _words(path: Path) -> frozenset[str]:
    """All words of a source outside of its comments."""
    return frozenset(re.findall(r"\w+", re.sub(r"//.*", "", path.read_text(encoding="utf-8", errors="replace"))))

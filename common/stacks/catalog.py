"""The catalog of variants, named stacks and selections, found by file name.

`variants/<name>.cu` with `conf/variant/<name>.yaml` is a variant; a yaml with `stack` and no source is a named stack; a
yaml with `selects` is a selection (`all`, `ladder`). Nothing else has to be edited to add one. The source's first
comment describes a variant to readers; its yaml, to the lab.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from common import ROOT
from common.errors import LabError
from common.stacks.entry import Entry
from common.stacks.variant import NamedStack, Selection, Variant

BASELINE = "baseline"


@dataclass(frozen=True)
class Catalog:
    """Variants, named stacks and selections below one root.

    broken  errors of unusable variants and stacks, by name; the others can be used
    keys    the keys at the top level of a run's configuration, apart from knobs
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


@cache
def read_catalog(root: Path = ROOT) -> Catalog:
    """Read all of conf/variant/ and variants/ below `root`. A faulty file makes only its own name unusable."""
    sources = {path.stem for path in (root / "variants").glob("*.cu")}
    names = sources | {path.stem for path in (root / "conf" / "variant").glob("*.yaml")}
    keys = _config_keys(root)
    found: dict[str, Variant] = {}
    stacks: dict[str, NamedStack] = {}
    selections: dict[str, Selection] = {}
    broken: dict[str, LabError] = {}
    for name in sorted(names, key=lambda name: (name != BASELINE, name)):
        try:
            entry = Entry(name, root)
            if entry.source.exists():
                found[name] = entry.variant(sources, keys)
            elif "stack" in entry.fields:
                stacks[name] = entry.stack(sources)
            elif "selects" in entry.fields:
                selections[name] = entry.selection(sources)
            else:
                raise entry.wrong(f"has neither variants/{name}.cu nor a `stack`", "add the source or the list")
        except LabError as error:
            broken[name] = error
    return Catalog(root, found, stacks, selections, broken, keys)


def _config_keys(root: Path) -> frozenset[str]:
    """Top-level keys of conf/config.yaml and its includes, and the groups in their defaults lists."""
    top = [OmegaConf.load(root / "conf" / name) for name in ("config.yaml", "base.yaml", "command.yaml")]
    groups = (str(group) for yaml in top for entry in yaml.defaults if not isinstance(entry, str) for group in entry)
    keys = frozenset(str(key) for yaml in top for key in yaml.keys() - {"defaults", "hydra"})
    return keys | {group for group in groups if " " not in group}

"""Lists in the text of --help, read from the yaml below conf/ so that each fact stands in one place.

In conf/hydra/help/*.yaml: `${keys:NAME}`, the keys of conf/NAME.yaml with their comments; `${options:GROUP}`, the
options of a group with a line about each; `${knobs:}`, the knobs of all variants.
"""

import re
from pathlib import Path

from omegaconf import OmegaConf

from common.stacks.catalog import read_catalog


def register(root: Path) -> None:
    """Let the three stand in the templates of a lab below `root`."""
    lists = {"keys": _keys, "options": _options, "knobs": _knobs}
    for name, make in lists.items():
        OmegaConf.register_new_resolver(name, lambda *names, make=make: _text(make(root, *names)), replace=True)


def _text(lines: list[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines).strip("\n")


def _keys(root: Path, name: str) -> list[str]:
    """The file's own lines, without the comment at its top, `defaults` and `hydra`."""
    blocks = re.split(r"^(?=\w)", (root / "conf" / f"{name}.yaml").read_text(), flags=re.MULTILINE)
    lines = "".join(block for block in blocks[1:] if not block.startswith(("defaults:", "hydra:", "name:")))
    return lines.strip("\n").splitlines()


def _options(root: Path, group: str) -> list[str]:
    """The name of each option, and the idea of a variant or else the first sentence of the yaml's comment."""
    catalog = read_catalog(root)
    ideas = {name: variant.idea for name, variant in catalog.variants.items()}
    ideas |= {name: stack.idea for name, stack in {**catalog.stacks, **catalog.tuned}.items()}
    files = sorted((root / "conf" / group).glob("*.yaml"))
    about = {file.stem: ideas.get(file.stem) or _comment(file) for file in files}
    width = max(map(len, about), default=0)
    return [f"{name:{width}}  {text}" for name, text in about.items()]


def _comment(file: Path) -> str:
    lines = (line[1:].strip() for line in file.read_text().splitlines() if line.startswith("#"))
    comment = " ".join(line for line in lines if not line.startswith(("@package", "Run ")))
    return re.split(r"(?<=[^.]\.)\s", comment)[0]


def _knobs(root: Path) -> list[str]:
    knobs = [(variant.name, knob) for variant in read_catalog(root).variants.values() for knob in variant.knobs]
    cells = [(name, f"{knob.name}={knob.default}", knob.describe(), knob.help) for name, knob in knobs]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    rows = ["  ".join([*map(str.ljust, row, widths), row[-1]]) for row in cells]
    return rows or ["(no variant has one yet)"]
